/* Shapes: the patterns of parameters (`x: [.., d]`, `i32[b, t]`), shapes
 * written in `param`, and lists of ints used as shapes.
 *
 * A name in a pattern that is an int in sight is compared, another name is
 * bound in the function's scope;
 * `..` is bound there as a list under the name "..". Every size is checked: at
 * least 1, rank at most PP_MAX_RANK, and few enough elements that no later sum
 * of bytes overflows. */
#include <string.h>

#include "compiler/eval.h"

static const int64_t max_elements = (int64_t)1 << 42;

bool shape_check_size(Eval *e, Loc loc, int rank, const int64_t *dims) {
  if (rank > PP_MAX_RANK) {
    eval_error(e, loc, "a tensor of %d axes: %d are the most", rank,
               PP_MAX_RANK);
    return false;
  }
  int64_t n = 1;
  for (int i = 0; i < rank; i++) {
    if (dims[i] < 1) {
      eval_error(e, loc, "axis %d of this tensor would have size %lld", i,
                 (long long)dims[i]);
      return false;
    }
    if (__builtin_mul_overflow(n, dims[i], &n) || n > max_elements) {
      eval_error(e, loc, "this tensor is too large: more than 2^42 elements");
      return false;
    }
  }
  return true;
}

/* --- patterns --- */

typedef struct {
  const AstParam *param;
  Tensor *tensor;
  Scope *scope;
  Loc arg_loc;
} Match;

static bool bind_name(Eval *e, const Match *m, const AstExpr *dim, Val v) {
  scope_declare(e, m->scope, SLOT_DIM, (AstName){dim->loc, dim->name}, v);
  return true;
}

static const AstFile *file_of(const Scope *scope) {
  while (scope->parent) scope = scope->parent;
  return scope->file;
}

/* What a name in a pattern means; UNSET: it is to be bound. */
static Val dim_in_sight(Eval *e, const Match *m, const AstExpr *dim) {
  Slot *slot = scope_find(m->scope, dim->name, dim->loc);
  if (slot) {
    if (slot->value.kind == VAL_INT || slot->value.kind == VAL_POISON)
      return slot->value;
    if (slot->value.kind == VAL_SETTING) return eval_slot(e, slot, dim->loc);
    eval_error(e, dim->loc, "'%s' in a shape must be a size, but here it is %s",
               dim->name, val_describe(e, slot->value));
    eval_note(e, slot->loc, "it is declared here");
    return POISON;
  }
  AstItem *item = dsl_find_item(file_of(m->scope), dim->name);
  if (!item) return (Val){.kind = VAL_UNSET};
  Val v = eval_item(e, item, dim->loc);
  if (v.kind == VAL_INT || v.kind == VAL_POISON) return v;
  eval_error(e, dim->loc, "'%s' in a shape must be a size, but here it is %s",
             dim->name, val_describe(e, v));
  eval_note(e, item->name_loc, "it is declared here");
  return POISON;
}

static bool match_dim(Eval *e, const Match *m, const AstExpr *dim, int axis) {
  int64_t size = type_dim(m->tensor->type, axis);
  Val want;
  if (dim->kind == EXPR_NAME) {
    want = dim_in_sight(e, m, dim);
    if (want.kind == VAL_UNSET) return bind_name(e, m, dim, val_int(size));
  } else {
    int64_t v;
    want = eval_int(e, dim, m->scope, "a size", &v) ? val_int(v) : POISON;
  }
  if (want.kind == VAL_POISON) return false;
  if (want.int_value == size) return true;
  const char *name =
      dim->kind == EXPR_NAME ? eval_printf(e, "%s = ", dim->name) : "";
  eval_error(e, m->arg_loc, "'%s' is %s, but axis %d must be %s%lld",
             m->param->name, tensor_shape_text(e, m->tensor->type), axis, name,
             (long long)want.int_value);
  eval_note(e, dim->loc, "the shape is declared here");
  return false;
}

static Val leading_axes(Eval *e, const Match *m, int n) {
  Val list = list_new(e, n);
  for (int i = 0; i < n; i++)
    list_push(e, list.list, val_int(type_dim(m->tensor->type, i)));
  return list;
}

static const char *list_text(Eval *e, const List *list) {
  Str text = {0};
  val_print(&text, (Val){.kind = VAL_LIST, .list = (List *)list}, 0);
  const char *kept = eval_printf(e, "%s", str_text(&text));
  str_free(&text);
  return kept;
}

/* A second `..` of the same function must equal the first. */
static bool match_ellipsis(Eval *e, const Match *m, const AstExpr *dim, int n) {
  Val axes = leading_axes(e, m, n);
  for (int i = 0; i < m->scope->n; i++) {
    const Slot *slot = &m->scope->slots[i];
    if (slot->name[0] != '.') continue;
    bool equal;
    if (val_equal(e, m->arg_loc, slot->value, axes, &equal) && equal)
      return true;
    eval_error(e, m->arg_loc, "'%s' is %s, but its leading axes must be %s",
               m->param->name, tensor_shape_text(e, m->tensor->type),
               list_text(e, slot->value.list));
    eval_note(e, slot->loc, "'..' was bound here");
    return false;
  }
  scope_declare(e, m->scope, SLOT_DIM, (AstName){dim->loc, ".."}, axes);
  return true;
}

static bool match_dtype(Eval *e, const Match *m) {
  const AstName *name = &m->param->shape->dtype;
  if (!name->name) return true;
  Slot *slot = scope_find(m->scope, name->name, name->loc);
  AstItem *item = slot ? NULL : dsl_find_item(file_of(m->scope), name->name);
  Val v = slot   ? eval_slot(e, slot, name->loc)
          : item ? eval_item(e, item, name->loc)
                 : builtin_value(e, name->name, name->loc);
  if (v.kind == VAL_POISON) return false;
  if (v.kind != VAL_DTYPE) {
    eval_error(e, name->loc, "'%s' is no dtype", name->name);
    return false;
  }
  pp_dtype is = type_dtype(m->tensor->type);
  if (v.dtype == is) return true;
  eval_error(e, m->arg_loc, "'%s' must be %s, but this is %s", m->param->name,
             dtype_name(v.dtype), tensor_shape_text(e, m->tensor->type));
  eval_note(e, name->loc, "the dtype is declared here");
  return false;
}

static bool match_rank(Eval *e, const Match *m, int n, bool open) {
  int rank = type_rank(m->tensor->type);
  if (open ? rank >= n : rank == n) return true;
  eval_error(e, m->arg_loc, "'%s' is %s, but it must have %s%d %s",
             m->param->name, tensor_shape_text(e, m->tensor->type),
             open ? "at least " : "", n, n == 1 ? "axis" : "axes");
  eval_note(e, m->param->shape->loc, "the shape is declared here");
  return false;
}

bool shape_match(Eval *e, const AstParam *param, Val v, Scope *scope,
                 Loc arg_loc) {
  if (v.kind == VAL_POISON) return false;
  if (v.kind != VAL_TENSOR) {
    eval_error(e, arg_loc, "'%s' must be a tensor, not %s", param->name,
               val_describe(e, v));
    eval_note(e, param->loc, "it is declared here");
    return false;
  }
  Match m = {param, v.tensor, scope, arg_loc};
  const AstExprs *dims = &param->shape->dims;
  bool open = dims->n > 0 && dims->at[0]->kind == EXPR_ELLIPSIS;
  int n = dims->n - (open ? 1 : 0);
  if (!match_dtype(e, &m) || !match_rank(e, &m, n, open)) return false;
  int leading = type_rank(v.tensor->type) - n;
  bool ok = !open || match_ellipsis(e, &m, dims->at[0], leading);
  for (int i = 0; i < n; i++) {
    const AstExpr *dim = dims->at[open ? i + 1 : i];
    if (dim->kind == EXPR_ELLIPSIS)
      return eval_error(e, dim->loc, "'..' can only stand first"), false;
    ok = match_dim(e, &m, dim, leading + i) && ok;
  }
  return ok;
}

/* --- shapes that are values --- */

static bool shape_dtype(Eval *e, const AstShape *shape, pp_dtype *out) {
  if (!shape->dtype.name) return true;
  Val v = builtin_value(e, shape->dtype.name, shape->dtype.loc);
  if (v.kind == VAL_POISON) return false;
  if (v.kind == VAL_DTYPE) return *out = v.dtype, true;
  eval_error(e, shape->dtype.loc, "'%s' is no dtype", shape->dtype.name);
  return false;
}

bool shape_eval(Eval *e, const AstShape *shape, Scope *scope,
                pp_dtype otherwise, Type *out) {
  int64_t dims[PP_MAX_RANK];
  pp_dtype dtype = otherwise;
  if (!shape_dtype(e, shape, &dtype)) return false;
  if (shape->dims.n > PP_MAX_RANK) {
    eval_error(e, shape->loc, "a tensor of %d axes: %d are the most",
               shape->dims.n, PP_MAX_RANK);
    return false;
  }
  for (int i = 0; i < shape->dims.n; i++) {
    const AstExpr *dim = shape->dims.at[i];
    if (dim->kind == EXPR_ELLIPSIS)
      return eval_error(e, dim->loc,
                        "'..' can't stand here: sizes must be known"),
             false;
    if (!eval_int(e, dim, scope, "a size", &dims[i])) return false;
  }
  if (!shape_check_size(e, shape->loc, shape->dims.n, dims)) return false;
  *out = type_tensor(e->ir, dtype, shape->dims.n, dims);
  return true;
}

bool shape_from_list(Eval *e, Val list, Loc loc, bool free, int *out_rank,
                     int64_t *out_dims) {
  if (list.kind == VAL_POISON) return false;
  if (list.kind != VAL_LIST)
    return eval_error(e, loc, "a shape is a list of ints, not %s",
                      val_describe(e, list)),
           false;
  const List *l = list.list;
  if (l->n > PP_MAX_RANK) {
    eval_error(e, loc, "a tensor of %lld axes: %d are the most",
               (long long)l->n, PP_MAX_RANK);
    return false;
  }
  *out_rank = (int)l->n;
  int n_free = 0;
  for (int i = 0; i < *out_rank; i++) {
    Val v = l->at[l->head + i];
    if (v.kind == VAL_POISON) return false;
    if (v.kind != VAL_INT)
      return eval_error(e, loc, "a shape is a list of ints: element %d is %s",
                        i, val_describe(e, v)),
             false;
    out_dims[i] = v.int_value;
    if (free && v.int_value == -1) n_free++;
  }
  if (n_free > 1)
    return eval_error(e, loc, "a shape can leave one size open with -1, not %d",
                      n_free),
           false;
  return n_free > 0 || shape_check_size(e, loc, *out_rank, out_dims);
}
