/* In: values of jansson. Out: objects and text, or bug() where memory is out. Does not read JSON. */
#include "compiler/base/json.h"

#include <stdlib.h>

#include "compiler/base/diag.h"

void json_put(json_t *object, const char *key, json_t *value) {
  if (!value || json_object_set_new(object, key, value) != 0) bug("JSON: '%s'", key);
}

json_t *json_text(const char *text) {
  if (!text) return json_null();
  json_t *plain = json_string(text);
  if (plain) return plain;
  Str clean = {0};
  for (; *text; text++) str_putc(&clean, (unsigned char)*text < 0x80 ? *text : '?');
  json_t *cleaned = json_string(str_text(&clean));
  str_free(&clean);
  return cleaned;
}

void json_print(Str *out, json_t *value, size_t flags) {
  char *text = json_dumps(value, flags);
  json_decref(value);
  if (!text) bug("JSON can't be written");
  str_puts(out, text);
  str_putc(out, '\n');
  free(text);
}
