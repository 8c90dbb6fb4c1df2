/* Making JSON with jansson: what every writer of it needs. Faults of memory are bugs. */
#ifndef PPC_BASE_JSON_H
#define PPC_BASE_JSON_H

#include <jansson.h>

#include "compiler/base/str.h"

/* Takes `value`, new or null after a fault. */
void json_put(json_t *object, const char *key, json_t *value);

/* A string; null gives JSON's null. Of a text that is no UTF-8 (a path) each byte beyond ASCII is shown as '?'. */
json_t *json_text(const char *text);

/* Takes `value` and appends its text, with jansson's flags, and a new line. */
void json_print(Str *out, json_t *value, size_t flags);

#endif
