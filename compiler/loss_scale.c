/* The loss scale S: what the loss is multiplied by before it is differentiated, so that small gradients don't vanish.
 * All accumulated gradients are S times theirs; `update` divides by S where it divides by the count.
 *
 * In: pp.loss_scale of the module (absent: 1) and, of a dynamic one, pp.loss_scale_growth, _backoff and _interval. A
 * constant scale is a constant. A dynamic one is a vector (PP_LOSS_SCALE_NEXT, …) in the stage of the loss, which
 * `decide` changes once a step. It needs no transfer: other ranks get what they need of it in the control vector. */
#include "compiler/compiler.h"

bool loss_scale_changes(Ir *ir) { return op_int(ir_top(ir), "pp.loss_scale_interval", 0) > 0; }

static Value number(Builder *b, double x) { return ir_constant(b, type_scalar(b->ir, PP_F64), x); }
static Value map2(Builder *b, OpId id, Value x, Value y) { return ir_map(b, id, 2, (Value[]){x, y}); }
static Value choose(Builder *b, Value condition, Value x, Value y) { return ir_map(b, OP_SELECT, 3, (Value[]){condition, x, y}); }

static Value read_vector(Builder *b) {
  Type t = type_tensor(b->ir, PP_F64, 1, (int64_t[]){PP_LOSS_SCALE_SIZE});
  return op_result(ir_build(b, OP_LOSS_SCALE, 0, NULL, 1, &t, 0, NULL), 0);
}

static Value element(Builder *b, Value vector, int64_t i) {
  int64_t limit = i + 1;
  return ir_reshape(b, ir_slice(b, vector, &i, &limit), 0, NULL);
}

Value loss_scale_read(Builder *b, Value *out_vector) {
  *out_vector = (Value){NULL};
  if (!loss_scale_changes(b->ir)) return number(b, op_float(ir_top(b->ir), "pp.loss_scale", 1));
  *out_vector = read_vector(b);
  return element(b, *out_vector, PP_LOSS_SCALE_NEXT);
}

/* S times a factor of the module, as a number of the loss's type. */
static Value times(Builder *b, Value scale, const char *factor, pp_dtype dtype) {
  Value product = map2(b, OP_MUL, scale, number(b, op_float(ir_top(b->ir), factor, 1)));
  return ir_cast(b, ir_cast(b, product, dtype), PP_F64);
}

/* After a step that isn't finite S is multiplied by backoff; after `interval` finite ones in a row by growth. A step in
 * which nothing was counted says nothing. S stays where it would leave PP_LOSS_SCALE_MIN … MAX. */
void loss_scale_decide(Builder *b, Value vector, Value finite, Value counted, pp_dtype dtype) {
  if (value_is_null(vector)) return;
  Value scale = element(b, vector, PP_LOSS_SCALE_NEXT), good = element(b, vector, PP_LOSS_SCALE_GOOD);
  Value zero = number(b, 0), more = map2(b, OP_ADD, good, number(b, 1));
  Value interval = number(b, (double)op_int(ir_top(b->ir), "pp.loss_scale_interval", 0));
  Value ripe = ir_compare(b, "ge", more, interval);
  Value larger = times(b, scale, "pp.loss_scale_growth", dtype), smaller = times(b, scale, "pp.loss_scale_backoff", dtype);
  Value grows = map2(b, OP_AND, ripe, ir_compare(b, "le", larger, number(b, PP_LOSS_SCALE_MAX)));
  Value shrinks = ir_compare(b, "ge", smaller, number(b, PP_LOSS_SCALE_MIN));
  Value after_finite = choose(b, grows, larger, scale), after_other = choose(b, shrinks, smaller, scale);
  Value good_after_finite = choose(b, ripe, zero, more);
  Value next[PP_LOSS_SCALE_SIZE];
  next[PP_LOSS_SCALE_NEXT] = choose(b, counted, choose(b, finite, after_finite, after_other), scale);
  next[PP_LOSS_SCALE_GOOD] = choose(b, counted, choose(b, finite, good_after_finite, zero), good);
  next[PP_LOSS_SCALE_LAST] = scale;
  for (int i = 0; i < PP_LOSS_SCALE_SIZE; i++) next[i] = ir_reshape(b, next[i], 1, (int64_t[]){1});
  b->name = "next_loss_scale";
  Value all = ir_concat(b, PP_LOSS_SCALE_SIZE, next, 0);
  ir_build(b, OP_RESCALE, 1, &all, 0, NULL, 0, NULL);
}
