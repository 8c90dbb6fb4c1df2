/* Scopes of a kernel's body. A scope is an open loop or condition with the text written into it so far, the
 * values that are known in it, and its row buffers. A value is put into the outermost scope that knows its
 * operands; closing a scope moves its text into the one around it. */
#include <ctype.h>

#include "codegen/kernel_emit.h"

const KernelOp kernel_ops[] = {
#define OP(id, name, class, ...) {name, CLASS_##class},
#include "compiler/ir/ops.def"
};

const char *kernel_type(pp_dtype dtype) {
  static const char *const names[] = {"float", "double", "int32_t", "uint8_t", "uint16_t"};
  return names[dtype];
}

const PlanType *kernel_value_type(const PlanKernel *k, int value) {
  return value < k->n_inputs ? &k->inputs[value] : &k->nodes[value - k->n_inputs].type;
}

static void print_shape(Str *out, const char *name, const PlanType *t) {
  str_printf(out, "%s: %s[", name, kernel_type(t->dtype));
  for (int i = 0; i < t->rank; i++) str_printf(out, "%s%lld", i ? ", " : "", (long long)t->dims[i]);
  str_putc(out, ']');
}

const char *kernel_comment(Arena *arena, const PlanKernel *k, const char *const *names) {
  Str out = {0};
  const char *separator = "";
  if (k->comment) str_puts(&out, k->comment), separator = "; ";
  for (int i = 0; i < k->n_inputs; i++, separator = "; ") {
    str_puts(&out, separator);
    print_shape(&out, names[i], &k->inputs[i]);
  }
  separator = " → ";
  for (int i = 0; i < k->n_outputs; i++, separator = "; ") {
    str_puts(&out, separator);
    print_shape(&out, names[k->n_inputs + i], kernel_value_type(k, k->outputs[i]));
  }
  const char *text = arena_strndup(arena, str_text(&out), out.length);
  str_free(&out);
  return text;
}

/* --- scopes ----------------------------------------------------------------------------------------- */

Scope *kernel_open_scope(Emit *e, bool is_condition) {
  Scope *s = arena_alloc(e->arena, sizeof *s);
  s->parent = e->scope;
  s->depth = e->scope ? e->scope->depth + 1 : 0;
  s->indent = e->scope ? e->scope->indent + 1 : 1;
  s->is_condition = is_condition;
  s->path = e->scope ? e->scope->path : "";
  s->diverges = e->scope && e->scope->diverges;
  s->loop = -1;
  e->scope = s;
  return s;
}

void kernel_extend_path(Emit *e, char kind, int a, int64_t b) {
  e->scope->path = arena_printf(e->arena, "%s/%c%d.%lld", e->scope->path, kind, a, (long long)b);
}

void kernel_print_line(Scope *s, const char *line) {
  str_pad(&s->text, ' ', 2 * s->indent);
  str_puts(&s->text, line);
  str_putc(&s->text, '\n');
}

void kernel_line(Emit *e, Scope *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  kernel_print_line(s, arena_vprintf(e->arena, format, args));
  va_end(args);
}

int kernel_count_mentions(const char *text, const char *name) {
  size_t n = strlen(name);
  int count = 0;
  for (const char *at = text; (at = strstr(at, name)); at += n) {
    bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
    count += begins && !(isalnum((unsigned char)at[n]) || at[n] == '_');
  }
  return count;
}

/* Row buffers and reductions that nothing reads after all. */
void kernel_print_unread(Emit *e, Scope *s) {
  for (int i = 0; i < s->results.n; i++)
    if (kernel_count_mentions(str_text(&s->text), s->results.at[i]) == 1) kernel_line(e, s, "(void)%s;", s->results.at[i]);
  for (int i = 0; i < s->buffers.n; i++)
    if (!s->buffers.at[i].is_read) kernel_line(e, s, "(void)%s;", s->buffers.at[i].name);
}

bool kernel_is_finished(const Emit *e, int loop) {
  for (int i = 0; i < e->finished.n; i++)
    if (e->finished.at[i] == loop) return true;
  return false;
}

void kernel_finish_loop(Emit *e, int loop) {
  if (!e->trials) VEC_PUSH(e->arena, &e->finished, loop);
}

/* Closes the innermost scope: its text, behind `first`, goes under `head` to its parent; null: without braces. */
void kernel_close_scope(Emit *e, const char *pragma, const char *head, const char *first) {
  Scope *s = e->scope, *parent = s->parent;
  kernel_print_unread(e, s);
  if (pragma) kernel_print_line(parent, pragma);
  if (head) kernel_line(e, parent, "%s{", head);
  if (first) {
    str_pad(&parent->text, ' ', 2 * s->indent);
    str_puts(&parent->text, first);
    str_putc(&parent->text, '\n');
  }
  str_append(&parent->text, str_text(&s->text), s->text.length);
  if (head) kernel_print_line(parent, "}");
  str_free(&s->text);
  parent->has_loops |= s->has_loops || (head && !strncmp(head, "for", 3));
  e->scope = parent;
}

Scope *kernel_scope_at(Emit *e, int depth) {
  Scope *s = e->scope;
  while (s->depth > depth && !s->is_condition) s = s->parent;
  return s;
}

const Memo *kernel_find_memo(Emit *e, const char *key) {
  uint64_t hash = str_hash(key, strlen(key));
  for (Scope *s = e->scope; s; s = s->parent)
    for (int i = s->memos.n - 1; i >= 0; i--)
      if (s->memos.at[i].hash == hash && !strcmp(s->memos.at[i].key, key)) return &s->memos.at[i];
  return NULL;
}

void kernel_remember(Emit *e, Scope *s, const char *key, Val val) {
  Memo m = {str_hash(key, strlen(key)), key, val};
  VEC_PUSH(e->arena, &s->memos, m);
}

static bool is_taken(const Emit *e, const char *name) {
  for (int i = 0; i < e->taken.n; i++)
    if (!strcmp(e->taken.at[i], name)) return true;
  return false;
}

const char *kernel_fresh_name(Emit *e, const char *base) {
  const char *name = base;
  for (int n = 2; is_taken(e, name); n++) name = arena_printf(e->arena, "%s_%d", base, n);
  VEC_PUSH(e->arena, &e->taken, name);
  return name;
}

/* --- trials: evaluate, note the accesses, forget the text --------------------------------------------- */

void kernel_trial_begin(Emit *e, Trial *t, Accesses *record) {
  int n = 0;
  for (Scope *s = e->scope; s; s = s->parent) {
    if (n == 128) bug("scopes nest too deep");
    t->marks[n++] = (ScopeMark){s->text.length, s->memos.n, s->buffers.n, s->results.n};
  }
  t->n_taken = e->taken.n, t->n_loops = e->n_loops, t->record = e->record;
  e->record = record;
  e->trials++;
}

void kernel_trial_end(Emit *e, Trial *t) {
  int n = 0;
  for (Scope *s = e->scope; s; s = s->parent, n++) {
    str_truncate(&s->text, t->marks[n].length);
    s->memos.n = t->marks[n].n_memos, s->buffers.n = t->marks[n].n_buffers, s->results.n = t->marks[n].n_results;
  }
  e->taken.n = t->n_taken, e->n_loops = t->n_loops;
  if (t->record)
    for (int i = 0; i < e->record->n; i++) VEC_PUSH(e->arena, t->record, e->record->at[i]);
  e->record = t->record;
  e->trials--;
}

void kernel_note_access(Emit *e, Index index) {
  Access a = {.e = index};
  if (e->record) VEC_PUSH(e->arena, e->record, a);
}
