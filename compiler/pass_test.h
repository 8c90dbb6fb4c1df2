/* What the tests of autodiff, stages and split share: modules built by hand, as elaborate makes
 * them, and data for the interpreter. All is deterministic. */
#ifndef PPC_PASS_TEST_H
#define PPC_PASS_TEST_H

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/test.h"
#include "compiler/compiler.h"
#include "compiler/interpret.h"

typedef struct {
  Arena *arena;
  Diag *diag;
  Ir *ir;
  Op func;    /* @loss */
  Builder b;  /* at its end, in the open stage */
  pp_dtype real;
} Fixture;

static inline Fixture fixture_start(int n_stages, int n_microbatches, pp_dtype real) {
  Fixture f = {.arena = arena_create(), .diag = diag_create(), .real = real};
  diag_add_source(f.diag, "m.pp", "text\n");
  f.ir = ir_create(f.arena, f.diag);
  op_set_int(f.ir, ir_top(f.ir), "pp.stages", n_stages);
  op_set_int(f.ir, ir_top(f.ir), "pp.microbatches", n_microbatches);
  op_set_string(f.ir, ir_top(f.ir), "pp.states", "");
  f.func = func_create(f.ir, ir_body(f.ir), (Loc){0, 1, 1}, "loss");
  f.b = (Builder){.ir = f.ir, .block = func_body(f.func), .loc = {0, 1, 1}};
  return f;
}

static inline void fixture_end(Fixture *f) {
  ir_destroy(f->ir);
  diag_destroy(f->diag);
  arena_destroy(f->arena);
}

/* A builder for declarations: before the functions. */
static inline Builder declarations(Fixture *f) {
  return (Builder){.ir = f->ir, .block = ir_body(f->ir), .before = f->func, .loc = f->b.loc, .stage = -1};
}

static inline Type shape(Fixture *f, pp_dtype dtype, int rank, ...) {
  int64_t dims[PP_MAX_RANK];
  va_list args;
  va_start(args, rank);
  for (int i = 0; i < rank; i++) dims[i] = va_arg(args, int);
  va_end(args);
  return type_tensor(f->ir, dtype, rank, dims);
}

static inline Value leaf(Fixture *f, OpId id, Type t, const char *attr, const char *name) {
  Attr a = {.name = attr, .kind = ATTR_KIND_STRING, .s = name};
  return op_result(ir_build(&f->b, id, 0, NULL, 1, &t, 1, &a), 0);
}

/* Declares the parameter at its first use; reads it in the open stage (one op per stage). */
static inline Value param(Fixture *f, const char *name, Type t) {
  if (op_is_null(ir_parameter(f->ir, name))) {
    Attr a[] = {{.name = "sym", .kind = ATTR_KIND_STRING, .s = name},
                {.name = "type", .kind = ATTR_KIND_TYPE, .type = t},
                {.name = "init", .kind = ATTR_KIND_STRING, .s = "zeros"},
                {.name = "a", .kind = ATTR_KIND_FLOAT},
                {.name = "b", .kind = ATTR_KIND_FLOAT}};
    Builder b = declarations(f);
    ir_build(&b, OP_PARAMETER, 0, NULL, 0, NULL, 5, a);
  }
  OpVec reads = ir_ops(f->arena, f->func, OP_PARAM);
  for (int i = 0; i < reads.n; i++)
    if (op_stage(reads.at[i]) == f->b.stage && !strcmp(op_string(f->arena, reads.at[i], "param"), name))
      return op_result(reads.at[i], 0);
  return leaf(f, OP_PARAM, t, "param", name);
}

static inline Value data(Fixture *f, const char *name, Type t) {
  OpVec reads = ir_ops(f->arena, f->func, OP_DATA);
  for (int i = 0; i < reads.n; i++)
    if (!strcmp(op_string(f->arena, reads.at[i], "source"), name)) return op_result(reads.at[i], 0);
  Attr a[] = {{.name = "sym", .kind = ATTR_KIND_STRING, .s = name},
              {.name = "type", .kind = ATTR_KIND_TYPE, .type = t},
              {.name = "kind", .kind = ATTR_KIND_STRING, .s = "synthetic"},
              {.name = "path", .kind = ATTR_KIND_STRING, .s = ""},
              {.name = "order", .kind = ATTR_KIND_STRING, .s = "random"},
              {.name = "vocabulary", .kind = ATTR_KIND_INT}};
  Builder b = declarations(f);
  ir_build(&b, OP_SOURCE, 0, NULL, 0, NULL, 6, a);
  return leaf(f, OP_DATA, t, "source", name);
}

static inline Value map1(Fixture *f, OpId id, Value x) { return ir_map(&f->b, id, 1, &x); }
static inline Value map2(Fixture *f, OpId id, Value x, Value y) { return ir_map(&f->b, id, 2, (Value[]){x, y}); }
static inline Value splat(Fixture *f, Value x, double v) { return ir_constant(&f->b, value_type(x), v); }

static inline Value sum_all(Fixture *f, Value x) {
  int64_t axes[PP_MAX_RANK];
  for (int i = 0; i < type_rank(value_type(x)); i++) axes[i] = i;
  return ir_reduce(&f->b, OP_REDUCE_SUM, x, type_rank(value_type(x)), axes);
}

/* Ends @loss. `count` may be null. */
static inline void finish_loss(Fixture *f, Value sum, Value count) {
  Value v[] = {sum, count};
  ir_build(&f->b, OP_LOSS, value_is_null(count) ? 1 : 2, v, 0, NULL, 0, NULL);
  func_return(f->ir, f->func, f->b.loc, 0, NULL);
}

/* @update.NAME: p - rate · g; with a state "m": m' = 0.5 m + g, p' = p - rate · m'. */
static inline void sgd(Fixture *f, double rate, bool momentum) {
  OpVec all = ir_ops(f->arena, ir_top(f->ir), OP_PARAMETER);
  if (momentum) op_set_string(f->ir, ir_top(f->ir), "pp.states", "m");
  for (int i = 0; i < all.n; i++) {
    Type t = op_type_attr(all.at[i], "type");
    Op func = func_create(f->ir, ir_body(f->ir), f->b.loc,
                          arena_printf(f->arena, "update.%s", op_string(f->arena, all.at[i], "sym")));
    Builder b = {.ir = f->ir, .block = func_body(func), .loc = f->b.loc, .stage = -1};
    Value p = func_add_arg(f->ir, func, t, b.loc), g = func_add_arg(f->ir, func, t, b.loc);
    if (momentum) {
      Value m = func_add_arg(f->ir, func, t, b.loc);
      Value half = ir_map(&b, OP_MUL, 2, (Value[]){m, ir_constant(&b, t, 0.5)});
      g = ir_map(&b, OP_ADD, 2, (Value[]){half, g});
    }
    func_add_arg(f->ir, func, type_scalar(f->ir, PP_F64), b.loc);
    Value move = ir_map(&b, OP_MUL, 2, (Value[]){g, ir_constant(&b, t, rate)});
    func_return(f->ir, func, b.loc, momentum ? 2 : 1, (Value[]){ir_map(&b, OP_SUB, 2, (Value[]){p, move}), g});
  }
}

/* @clip: min(1, max / norm) */
static inline void clip(Fixture *f, double max) {
  Op func = func_create(f->ir, ir_body(f->ir), f->b.loc, "clip");
  Builder b = {.ir = f->ir, .block = func_body(func), .loc = f->b.loc, .stage = -1};
  Type t = type_scalar(f->ir, PP_F64);
  Value norm = func_add_arg(f->ir, func, t, b.loc);
  Value ratio = ir_map(&b, OP_DIV, 2, (Value[]){ir_constant(&b, t, max), norm});
  Value factor = ir_map(&b, OP_MIN, 2, (Value[]){ir_constant(&b, t, 1), ratio});
  func_return(f->ir, func, b.loc, 1, &factor);
}

/* --- numbers --------------------------------------------------------------------------------- */

static inline double noise(uint64_t seed, int64_t i) {
  uint64_t x = seed * 0x9E3779B97F4A7C15u + (uint64_t)i * 0xBF58476D1CE4E5B9u + 1;
  x = (x ^ x >> 31) * 0x94D049BB133111EBu;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
  return (double)((x ^ x >> 32) >> 11) / 4503599627370496.0 - 1; /* [-1, 1) */
}

static inline void fill(Tensor *t, const char *name, int64_t salt) {
  uint64_t seed = str_hash(name, strlen(name)) + (uint64_t)salt;
  for (int64_t i = 0; i < t->n; i++) {
    double x = noise(seed, i);
    pp_dtype d = type_dtype(t->type);
    t->at[i] = d == PP_F32 ? (float)x : d == PP_I32 ? floor((x + 1) * 2) : d == PP_BOOL ? x > 0 : x; /* i32: 0 … 3 */
  }
}

static inline void fill_data(Machine *m, const char *source, Tensor *out) {
  fill(out, source, 1000 * (int64_t)m->step + m->microbatch);
}

/* Parameters as noise, away from 0. */
static inline Machine *noisy_machine(Ir *ir, Arena *arena) {
  Machine *m = machine_create(ir, arena);
  m->data = fill_data;
  for (int i = 0; i < m->params.n; i++) {
    Tensor *t = m->params.entries[i].value;
    fill(t, m->params.entries[i].key, 7);
    for (int64_t k = 0; k < t->n; k++) {
      double x = t->at[k] + (t->at[k] < 0 ? -0.2 : 0.2);
      t->at[k] = type_dtype(t->type) == PP_F32 ? (float)x : x;
    }
  }
  return m;
}

#endif
