/* Text helpers of code generation. In: strings, types and numbers of the plan. Out: pieces of C.
 * Escapes whatever comes from the user, so that no name or path can leave its literal or comment. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codegen/parts.h"
#include "compiler/base/diag.h"

void emit_add(Arena *arena, EmitFiles *files, const char *path, Str *str) {
  char *text = arena_strndup(arena, str_text(str), str->length);
  VEC_PUSH(arena, files, (EmitFile){arena_strdup(arena, path), text, str->length, false});
  str_free(str);
}

/* With `_` behind it a name is as it was, so that names that get one stay apart from those that had it. */
bool emit_may_be_taken(const char *name) {
  static const char *const ours[] = {"pp_", "PP_", "_", "launch_", "kernel_", "product_"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
    if (str_starts_with(name, ours[i])) return true;
  size_t length = strlen(name), letters = 0;
  while (length > 0 && name[length - 1] == '_') length--;
  for (size_t i = 0; i < length; i++) {
    if (islower((unsigned char)name[i])) return length > 2 && !strncmp(name + length - 2, "_t", 2);
    letters += isupper((unsigned char)name[i]) != 0;
  }
  return letters > 1; /* a macro */
}

const char *emit_c_type(pp_dtype dtype) {
  static const char *const names[] = {"float", "double", "int32_t", "uint8_t", "uint16_t"};
  _Static_assert(sizeof names / sizeof *names == PP_DTYPE_COUNT, "one name per dtype");
  return names[dtype];
}

const char *emit_dtype(pp_dtype dtype) {
  static const char *const names[] = {"PP_F32", "PP_F64", "PP_I32", "PP_BOOL", "PP_BF16"};
  _Static_assert(sizeof names / sizeof *names == PP_DTYPE_COUNT, "one name per dtype");
  return names[dtype];
}

const char *emit_kind(pp_task_kind kind) {
  static const char *const names[] = {"PP_FWD",    "PP_BWD",    "PP_BWD_INPUT", "PP_BWD_WEIGHT",
                                      "PP_FINISH", "PP_DECIDE", "PP_UPDATE",    "PP_REFRESH", "PP_PREPARE"};
  _Static_assert(sizeof names / sizeof *names == PP_TASK_KIND_COUNT, "one name per kind");
  return names[kind];
}

const char *emit_space(pp_space space) { return space == PP_WINDOW ? "PP_WINDOW" : "PP_ARENA"; }

void emit_shape(Str *out, const PlanType *type) {
  str_putc(out, '[');
  for (int i = 0; i < type->rank; i++)
    str_printf(out, "%s%lld", i ? ", " : "", (long long)type->dims[i]);
  str_putc(out, ']');
}

void emit_string(Str *out, const char *text) {
  if (!text) {
    str_puts(out, "NULL");
    return;
  }
  str_putc(out, '"');
  for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
    /* a question mark is escaped because of trigraphs */
    if (*p == '"' || *p == '\\' || *p == '?') str_printf(out, "\\%c", *p);
    else if (*p < 0x20 || *p == 0x7f) str_printf(out, "\\%03o", *p);
    else str_putc(out, (char)*p);
  }
  str_putc(out, '"');
}

void emit_comment(Str *out, const char *text) {
  if (!text) return;
  for (const char *p = text; *p; p++) {
    bool opens = *p == '/' && p[1] == '*', closes = *p == '*' && p[1] == '/';
    bool splices = *p == '\\' && (p[1] == '\0' || p[1] == '\n');
    if ((unsigned char)*p < 0x20 || *p == 0x7f || splices) str_putc(out, ' ');
    else str_putc(out, *p);
    if (opens || closes) str_putc(out, ' ');
    /* "??/" would be a backslash */
    if (*p == '?' && p[1] == '?') str_putc(out, ' ');
  }
  /* the caller may add the end right behind */
  if (text[0] && text[strlen(text) - 1] == '*') str_putc(out, ' ');
}

void emit_wrapped_comment(Str *out, const char *text) {
  Str clean = {0};
  emit_comment(&clean, text);
  int indent = emit_column(out) + 1;
  str_puts(out, "/*");
  for (const char *p = str_text(&clean); *p;) {
    size_t blanks = strspn(p, " "), n = strcspn(p + blanks, " ");
    if (n == 0) break;
    bool is_last = p[blanks + n] == '\0';
    int end = emit_column(out) + 1 + (int)n + (is_last ? 3 : 0);
    if (end > EMIT_COLUMNS && emit_column(out) > indent + 2) {
      str_putc(out, '\n');
      str_pad(out, ' ', indent);
      str_puts(out, "* ");
    }
    str_putc(out, ' ');
    str_append(out, p + blanks, n);
    p += blanks + n;
  }
  str_puts(out, " */");
  str_free(&clean);
}

void emit_grouped(Str *out, uint64_t value) {
  char digits[32];
  int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
  for (int i = 0; i < n; i++) {
    if (i && (n - i) % 3 == 0) str_putc(out, ',');
    str_putc(out, digits[i]);
  }
}

int emit_column(const Str *out) {
  size_t n = out->length;
  while (n > 0 && out->text[n - 1] != '\n') n--;
  return (int)(out->length - n);
}

void emit_to_column(Str *out, int column) {
  int now = emit_column(out);
  str_pad(out, ' ', now < column ? column - now : 1);
}

void emit_call_start(EmitCall *call, Str *out, const char *name) {
  str_puts(out, name);
  str_putc(out, '(');
  *call = (EmitCall){.out = out, .indent = emit_column(out), .n = 0};
  /* a very long name: the arguments go below */
  if (call->indent > EMIT_COLUMNS / 2) call->indent = 6;
}

void emit_call_arg(EmitCall *call, const char *format, ...) {
  Str arg = {0};
  va_list args;
  va_start(args, format);
  str_vprintf(&arg, format, args);
  va_end(args);
  if (call->n++) str_puts(call->out, ",");
  if (emit_column(call->out) + 3 + (int)arg.length > EMIT_COLUMNS && call->n > 1) {
    str_putc(call->out, '\n');
    str_pad(call->out, ' ', call->indent);
  } else if (call->n > 1) {
    str_putc(call->out, ' ');
  }
  str_puts(call->out, str_text(&arg));
  str_free(&arg);
}

void emit_call_end(EmitCall *call) { str_puts(call->out, ");"); }
