//! Templates as published models write them, against the text transformers renders for them.

use super::*;

fn render(source: &str, messages: &[Message]) -> Result<String, Error> {
    ChatTemplate::new(source, Some("<s>".to_owned()), Some("</s>".to_owned()))?.render(messages)
}

fn talk() -> Vec<Message> {
    let assistant = Message {
        role: "assistant".to_owned(),
        content: " Hello. ".to_owned(),
    };
    vec![
        Message::user("Hi <there>"),
        assistant,
        Message::user("é & 'q'"),
    ]
}

#[test]
fn chatml_with_a_default_system_message() {
    let source = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
        {{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}\
        {{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
        {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    assert_eq!(
        render(source, &[Message::user("Hi")]).unwrap(),
        "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn blocks_are_trimmed_and_python_methods_work() {
    // The shape of Gemma's template: indentation, strip(), a renamed role, alternation checked.
    let source = "{{ bos_token }}\n{%- for message in messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception(\"roles must alternate\") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = \"model\" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (message['content'].strip()) }}{{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\n' }}
{%- endif -%}
";
    assert_eq!(
        render(source, &talk()).unwrap(),
        "<s><start_of_turn>user\nHi <there><end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n\
         <start_of_turn>user\né & 'q'<end_of_turn>\n<start_of_turn>model\n"
    );
    let twice = [Message::user("a"), Message::user("b")];
    let error = render(source, &twice).unwrap_err().to_string();
    assert!(
        error.contains("roles must alternate") && error.contains("line"),
        "{error}"
    );
}

#[test]
fn tojson_is_pythons() {
    let source = "{{ {'a': ['<b>', 'é', 1, true, none], 'c': {}} | tojson }}|{{ [1, {'k': 2}] | tojson(indent=2) }}";
    assert_eq!(
        render(source, &[]).unwrap(),
        "{\"a\": [\"<b>\", \"é\", 1, true, null], \"c\": {}}|[\n  1,\n  {\n    \"k\": 2\n  }\n]"
    );
}

#[test]
fn generation_tags_and_loop_controls_are_understood() {
    let source = "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}\n{%- generation -%}\n {{ m.content }} {% endgeneration %}.{% endfor %}";
    assert_eq!(render(source, &talk()).unwrap(), "Hi <there> .");
}

#[test]
fn the_date_is_todays() {
    let rendered = render("{{ strftime_now('%d %b %Y') }}", &[]).unwrap();
    let parts: Vec<&str> = rendered.split(' ').collect();
    assert_eq!(parts.len(), 3, "{rendered}");
    assert!(parts[2].parse::<u32>().unwrap() >= 2024, "{rendered}");
}

#[test]
fn a_template_that_does_not_parse_names_its_line() {
    let error = render("one\n{% if %}", &[]).unwrap_err().to_string();
    assert!(error.starts_with("chat template: line 2"), "{error}");
    // A tag that never ends is the parser's to report, not ours to lose.
    assert!(render("a {% generation ", &[]).is_err());
}

#[test]
fn a_template_is_held_to_its_budget() {
    for (source, part) in [
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "line 1: engine ran out of fuel",
        ),
        (
            "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
            "out of fuel",
        ),
        (
            "{{ ('x' * 9999999).replace('x', 'y' * 9999999) }}",
            "out of fuel",
        ),
        (
            "{% set n = namespace(t=[1]) %}{% for i in range(60) %}{% set n.t = [n.t, n.t] %}{% endfor %}\
             {{ n.t | tojson }}",
            "at most 1 MiB",
        ),
        ("{{ [1] | tojson(indent=999999999) }}", "indent"),
        (
            "{% set n = namespace(t=[1]) %}{% for i in range(5000) %}{% set n.t = [n.t] %}{% endfor %}\
             {{ n.t | tojson(indent=16) }}",
            "more than 1 MiB",
        ),
        (
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "recursion",
        ),
    ] {
        let error = render(source, &[]).unwrap_err().to_string();
        assert!(error.contains(part), "{source}: {error}");
    }
    let long = "a".repeat(SOURCE_BYTES);
    assert_eq!(render(&long, &[]).unwrap(), long);
    let error = render(&(long + "a"), &[]).unwrap_err().to_string();
    assert_eq!(error, "chat template: 65537 bytes, the limit is 65536");
}

#[test]
fn what_is_nested_deeply_does_not_overflow_the_stack() {
    let nested = |end: &str| {
        format!(
            "{{% set n = namespace(t=1) %}}{{% for a in range(10) %}}{{% for b in range(9999) %}}\
             {{% set n.t = [n.t] %}}{{% endfor %}}{{% endfor %}}{end}"
        )
    };
    for end in ["", "{{ n.t }}", "{{ n.t | tojson }}", "{{ n.t == [n.t] }}"] {
        // Whether it can be paid for does not matter; that it comes back does.
        let _ = render(&nested(end), &[]);
    }
    for link in ["+a", "|a", ".a", "[0]", " and a"] {
        let chain = link.repeat((TAG_BYTES - 8) / link.len());
        let _ = render(&format!("{{{{ a{chain} }}}}"), &[]);
        let chain = link.repeat((SOURCE_BYTES - 8) / link.len());
        let refused = ChatTemplate::new(&format!("{{{{ a{chain} }}}}"), None, None).unwrap_err();
        assert!(
            refused.to_string().contains("the limit is 8192"),
            "{refused}"
        );
    }
    let not = "not ".repeat(TAG_BYTES / 4 - 4);
    let _ = render(&format!("{{{{ {not}a }}}}"), &[]);
    let branch = "{%elif a%}".repeat((SOURCE_BYTES - 30) / 10);
    let _ = render(&format!("{{% if a %}}{branch}{{% endif %}}"), &[]);
}
