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
