/* Compile-time values: what they are called, print, compare; lists; scopes;
 * errors of the evaluator.
 *
 * In: values. Out: texts, slots, diagnostics. Memory comes from the Ir's arena
 * and counts against a budget; scopes that no closure holds are kept for reuse,
 * so that a loop of a schedule allocates nothing. Nothing here evaluates. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compiler/eval.h"

/* --- memory --- */

void *eval_alloc(Eval *e, size_t size_bytes) {
  e->bytes += size_bytes;
  if (e->bytes > e->byte_limit)
    eval_fatal(e, e->here,
               "this program needs too much memory: its lists and variables "
               "passed %zu MiB",
               e->byte_limit >> 20);
  return arena_alloc(e->arena, size_bytes);
}

const char *eval_printf(Eval *e, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(e->arena, format, args);
  va_end(args);
  e->bytes += strlen(text);
  return text;
}

/* --- texts --- */

const char *tensor_shape_text(Eval *e, Type t) {
  return type_text(e->arena, t);
}

const char *val_describe(Eval *e, Val v) {
  switch (v.kind) {
  case VAL_INT:
    return eval_printf(e, "the int %lld", (long long)v.int_value);
  case VAL_FLOAT: {
    char text[32];
    str_format_double(v.float_value, text);
    return eval_printf(e, "the float %s", text);
  }
  case VAL_BOOL:
    return v.bool_value ? "the bool true" : "the bool false";
  case VAL_STRING:
    return "a string";
  case VAL_WORD:
    return eval_printf(e, "the word '%s'", v.string);
  case VAL_DTYPE:
    return eval_printf(e, "the dtype %s", dtype_name(v.dtype));
  case VAL_LIST:
    return "a list";
  case VAL_TUPLE:
    return eval_printf(e, "%lld results", (long long)v.list->n);
  case VAL_CLOSURE:
  case VAL_CONSTANT_FN:
  case VAL_BUILTIN:
    return "a function";
  case VAL_ITEM:
    if (v.item->kind == ITEM_MODULE) return "a module";
    return v.item->kind == ITEM_SCHEDULE ? "a schedule" : "an optimizer";
  case VAL_BOUND:
    return v.bound->item->kind == ITEM_SCHEDULE ? "a schedule" : "an optimizer";
  case VAL_INSTANCE:
    return eval_printf(e, "an instance of module '%s'",
                       v.instance->module->name);
  case VAL_SOURCE:
    return "a data source";
  case VAL_INIT:
    return "an initial value";
  case VAL_LOSS_SCALE:
    return "a dynamic loss scale";
  case VAL_PARAM:
    return "a parameter";
  case VAL_TENSOR:
    if (v.tensor->number) return "a run-time number";
    return eval_printf(e, "the tensor %s",
                       tensor_shape_text(e, v.tensor->type));
  case VAL_SETTING:
  case VAL_NONE:
  case VAL_UNSET:
  case VAL_POISON:
    break;
  }
  return "nothing";
}

static void print_list(Str *out, const List *list, int depth) {
  str_putc(out, '[');
  for (int64_t i = 0; i < list->n && i < 64; i++) {
    if (i > 0) str_puts(out, ", ");
    val_print(out, list->at[list->head + i], depth + 1);
  }
  str_puts(out, list->n > 64 ? ", …]" : "]");
}

static void print_tensor(Str *out, const Tensor *t) {
  if (t->number) {
    str_puts(out, "<run-time number>");
    return;
  }
  str_puts(out, dtype_name(type_dtype(t->type)));
  str_putc(out, '[');
  for (int i = 0; i < type_rank(t->type); i++)
    str_printf(out, i > 0 ? ", %lld" : "%lld",
               (long long)type_dim(t->type, i));
  str_putc(out, ']');
}

void val_print(Str *out, Val v, int depth) {
  char text[32];
  switch (v.kind) {
  case VAL_INT:
    str_printf(out, "%lld", (long long)v.int_value);
    break;
  case VAL_FLOAT:
    str_format_double(v.float_value, text), str_puts(out, text);
    break;
  case VAL_BOOL:
    str_puts(out, v.bool_value ? "true" : "false");
    break;
  case VAL_STRING:
  case VAL_WORD:
    str_puts(out, v.string);
    break;
  case VAL_DTYPE:
    str_puts(out, dtype_name(v.dtype));
    break;
  case VAL_LIST:
  case VAL_TUPLE:
    if (depth < 4)
      print_list(out, v.list, depth);
    else
      str_puts(out, "[…]");
    break;
  case VAL_TENSOR:
    print_tensor(out, v.tensor);
    break;
  case VAL_INSTANCE:
    str_printf(out, "<%s>", v.instance->module->name);
    break;
  default:
    str_puts(out, "<function>");
    break;
  }
}

/* --- equality --- */

static bool numbers_equal(Val a, Val b) {
  if (a.kind == VAL_INT && b.kind == VAL_INT) return a.int_value == b.int_value;
  return val_number(a) == val_number(b);
}

static bool equal_at(Eval *e, Loc loc, Val a, Val b, int depth, bool *out) {
  if (a.kind == VAL_POISON || b.kind == VAL_POISON) return false;
  if (val_is_number(a) && val_is_number(b))
    return *out = numbers_equal(a, b), true;
  if (a.kind == b.kind) switch (a.kind) {
    case VAL_BOOL:
      return *out = a.bool_value == b.bool_value, true;
    case VAL_STRING:
    case VAL_WORD:
      return *out = strcmp(a.string, b.string) == 0, true;
    case VAL_DTYPE:
      return *out = a.dtype == b.dtype, true;
    case VAL_LIST: {
      if (depth > 100)
        return eval_error(e, loc,
                          "these lists are nested too deeply to compare"),
               false;
      *out = a.list->n == b.list->n;
      for (int64_t i = 0; *out && i < a.list->n; i++)
        if (++e->steps, !equal_at(e, loc, a.list->at[a.list->head + i],
                                  b.list->at[b.list->head + i], depth + 1, out))
          return false;
      return true;
    }
    default:
      break;
    }
  eval_error(e, loc, "can't compare %s with %s", val_describe(e, a),
             val_describe(e, b));
  return false;
}

bool val_equal(Eval *e, Loc loc, Val a, Val b, bool *out_equal) {
  return equal_at(e, loc, a, b, 0, out_equal);
}

/* --- lists --- */

enum { LIST_MAX = 1 << 26 };

Val list_new(Eval *e, int64_t capacity) {
  List *list = eval_alloc(e, sizeof *list);
  if (capacity > LIST_MAX) {
    eval_fatal(e, e->here, "a list of %lld elements is too long",
               (long long)capacity);
    capacity = 0;
  }
  if (capacity > 0)
    list->at = eval_alloc(e, (size_t)capacity * sizeof *list->at);
  list->cap = capacity;
  return (Val){.kind = VAL_LIST, .list = list};
}

void list_push(Eval *e, List *list, Val v) {
  if (list->head + list->n == list->cap) {
    int64_t cap = list->n < 4 ? 8 : list->n * 2;
    if (cap > LIST_MAX) {
      eval_fatal(e, e->here, "a list of %lld elements is too long",
                 (long long)list->n);
      return;
    }
    Val *at = eval_alloc(e, (size_t)cap * sizeof *at);
    if (list->n > 0)
      memcpy(at, list->at + list->head, (size_t)list->n * sizeof *at);
    list->at = at;
    list->head = 0;
    list->cap = cap;
  }
  list->at[list->head + list->n++] = v;
}

/* --- scopes --- */

Scope *scope_push(Eval *e, Scope *parent) {
  Scope *scope;
  if (e->free_scopes.n > 0) {
    scope = VEC_POP(&e->free_scopes);
    scope->n = 0;
  } else {
    scope = eval_alloc(e, sizeof *scope);
  }
  scope->parent = parent;
  return scope;
}

void scope_pop(Eval *e, Scope *scope) {
  if (!scope->captured) VEC_PUSH(e->arena, &e->free_scopes, scope);
}

void scope_capture(Scope *scope) {
  for (; scope && !scope->captured; scope = scope->parent)
    scope->captured = true;
}

Slot *scope_declare(Eval *e, Scope *scope, int kind, AstName name, Val v) {
  if (scope->n == scope->cap) {
    int cap = scope->cap ? scope->cap * 2 : 4;
    Slot *slots = eval_alloc(e, (size_t)cap * sizeof *slots);
    if (scope->n > 0)
      memcpy(slots, scope->slots, (size_t)scope->n * sizeof *slots);
    scope->slots = slots;
    scope->cap = cap;
  }
  Slot *slot = &scope->slots[scope->n++];
  *slot = (Slot){.name = name.name, .value = v, .loc = name.loc, .kind = kind};
  return slot;
}

Slot *scope_own(Scope *scope, const char *name) {
  for (int i = scope->n - 1; i >= 0; i--)
    if (scope->slots[i].name == name && scope->slots[i].value.kind != VAL_UNSET)
      return &scope->slots[i];
  return NULL;
}

static bool loc_before(Loc a, Loc b) {
  return a.line < b.line || (a.line == b.line && a.col < b.col);
}

/* A `let` is in sight behind its place only; in open scopes everything is. */
Slot *scope_find(Scope *scope, const char *name, Loc at) {
  for (; scope; scope = scope->parent)
    for (int i = scope->n - 1; i >= 0; i--) {
      Slot *slot = &scope->slots[i];
      if (slot->name != name || slot->value.kind == VAL_UNSET) continue;
      if (scope->open || slot->loc.file != at.file || loc_before(slot->loc, at))
        return slot;
    }
  return NULL;
}

/* --- errors --- */

static bool loc_equal(Loc a, Loc b) {
  return a.file == b.file && a.line == b.line && a.col == b.col;
}

static bool already_reported(Eval *e, Loc loc) {
  if (loc.line == 0) return false;
  for (int i = 0; i < e->reported.n; i++)
    if (loc_equal(e->reported.at[i], loc)) return true;
  VEC_PUSH(e->arena, &e->reported, loc);
  return false;
}

/* Keeps the calls worth a note: the two innermost, and the innermost that
 * stands in the main file. */
static void remember_calls(Eval *e, Loc loc) {
  e->pending.n = 0;
  bool in_main = loc.file == e->program->main->file_index;
  Loc last = loc;
  for (int i = e->frames.n - 1; i >= 0; i--) {
    CallFrame frame = e->frames.at[i];
    bool outer_names_it =
        !frame.name && i > 0 && loc_equal(frame.loc, e->frames.at[i - 1].loc);
    if (outer_names_it)
      frame.name = e->frames.at[i - 1].name; /* an optimizer's function */
    bool is_main = frame.loc.file == e->program->main->file_index;
    bool wanted = e->pending.n < 2 || (is_main && !in_main);
    bool near = frame.loc.line == loc.line && frame.loc.file == loc.file;
    if (!wanted || frame.loc.line == 0 || near || loc_equal(frame.loc, last))
      continue;
    VEC_PUSH(e->arena, &e->pending, frame);
    last = frame.loc;
    in_main = in_main || is_main;
  }
}

void eval_flush_notes(Eval *e) {
  for (int i = 0; i < e->pending.n; i++) {
    CallFrame frame = e->pending.at[i];
    const char *name = frame.name       ? frame.name
                       : frame.instance ? frame.instance->module->name
                                        : NULL;
    if (name)
      diag_note(e->diag, frame.loc, "in the call of '%s' here", name);
    else
      diag_note(e->diag, frame.loc, "in the call here");
  }
  e->pending.n = 0;
}

static void report(Eval *e, Loc loc, const char *format, va_list args) {
  eval_flush_notes(e);
  e->muted = already_reported(e, loc);
  if (e->muted) return;
  diag_verror(e->diag, loc, format, args);
  remember_calls(e, loc);
  if (diag_is_full(e->diag)) e->fatal = e->stop = true;
}

Val eval_error(Eval *e, Loc loc, const char *format, ...) {
  if (e->fatal) return POISON;
  va_list args;
  va_start(args, format);
  report(e, loc, format, args);
  va_end(args);
  return POISON;
}

void eval_note(Eval *e, Loc loc, const char *format, ...) {
  if (e->fatal || e->muted) return;
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(e->arena, format, args);
  va_end(args);
  diag_note(e->diag, loc, "%s", text);
}

void eval_fatal(Eval *e, Loc loc, const char *format, ...) {
  if (e->fatal) return;
  va_list args;
  va_start(args, format);
  report(e, loc, format, args);
  va_end(args);
  e->fatal = e->stop = true;
}

void eval_stop(Eval *e) {
  e->stop = true;
}
