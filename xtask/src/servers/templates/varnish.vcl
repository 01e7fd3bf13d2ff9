vcl 4.1;

backend origin {
    .host = "{{origin_host}}";
    .port = "{{origin_port}}";
}

sub vcl_backend_response {
    # The files never change under their names. Ranges are cut here, out of whole objects.
    if (beresp.status == 200) {
        set beresp.ttl = 30d;
    }
}
