/* The layers of the library and the models of testdata/, small, from the text to tasks: in f64 the
 * gradients of some elements of every parameter against central differences, and the tasks of each cut
 * against the whole step, to the bit. What is tested is the library, the elaborator and the passes up to split together. */
#include "compiler/job_test.h"
#include "dsl/load.h"

typedef struct {
  const char *name;
  const char *path;
  const char *defines[8]; /* "width=8" */
} Model;

static const Model models[] = {
    {"mlp", "testdata/models/mlp.pp", {"width=5", "length=6", "layers=4", "stages=3"}},
    {"gpt2", "testdata/models/gpt2.pp",
     {"width=8", "heads=2", "length=6", "vocab=11", "layers=3", "stages=3", "rate=0.25"}},
    {"llama", "testdata/models/llama.pp",
     {"width=16", "heads=4", "kv_heads=2", "hidden=12", "length=5", "vocab=7", "layers=2", "stages=2"}},
    {"skip", "testdata/models/skip.pp", {"width=6", "length=5", "rate=0.25"}},
    {"encdec", "testdata/models/encdec.pp", {"width=8", "heads=2", "length=5", "vocab=9"}},
};

/* Layers alone: h is [2, 3, 4], made from the data and a parameter; i is i32[2, 3] in 0 … 3. */
typedef struct {
  const char *name, *members, *result; /* of the module; the value whose adjoint starts the backward pass */
} Layer;

static const Layer layers[] = {
    {"linear", "l: linear(4, 5, std = 0.5);", "l(h)"},
    {"linear without bias", "l: linear(4, 5, with_bias = false, std = 0.5);", "l(h)"},
    {"conv1d", "l: conv1d(4, 5, std = 0.5);", "l(h)"},
    {"embedding", "l: embedding(4, 5, std = 0.5);", "l(i) * h[.., 0..1]"},
    {"layer_norm", "l: layer_norm(4);", "l(h)"},
    {"rms_norm", "l: rms_norm(4);", "l(h)"},
    {"relu", "", "relu(h)"},
    {"sigmoid", "", "sigmoid(h)"},
    {"silu", "", "silu(h)"},
    {"gelu", "", "gelu(h)"},
    {"gelu_tanh", "", "gelu_tanh(h)"},
    {"softmax", "", "softmax(h)"},
    {"log_softmax", "", "log_softmax(h)"},
    {"dropout", "", "dropout(h, 0.4)"},
    {"token_losses", "", "token_losses(h, i)"},
    {"mean_squared_error", "", "mean_squared_error(h, sin(h))"},
    {"gpt2_attention", "l: gpt2_attention(4, 2);", "l(h)"},
    {"gpt2_mlp", "l: gpt2_mlp(4, 6);", "l(h)"},
    {"rope", "", "rope(split_heads(h, 2))"},
    {"llama_attention", "l: llama_attention(8, 4, 2);", "l(concat([h, sin(h)], axis = -1))"},
    {"llama_mlp", "l: llama_mlp(4, 6);", "l(h)"},
    {"tied weights", "e: embedding(4, 4, std = 0.5);", "softmax((e(i) * h) @ transpose(e.weight))"},
};

enum { MICROBATCH = 2, MICROBATCHES = 2 };

static const char *layer_text(Arena *arena, const Layer *layer, const char *loss) {
  return arena_printf(arena,
                      "use nn; use optim; use schedules;\n"
                      "module one() {\n"
                      "  param a: [3, 4] = normal(0.0, 1.0);\n"
                      "  %s\n"
                      "  fn (x: [b, n], ids: i32[b, m]) {\n"
                      "    let h = reshape(cast(x, real), [b, 3, 4]) * a + a;\n"
                      "    let i = ids;\n"
                      "    let y = %s;\n"
                      "    return %s;\n"
                      "  }\n"
                      "}\n"
                      "train {\n"
                      "  model net = one(); batch microbatch = 2, microbatches = 2;\n"
                      "  data x = synthetic(12); data ids = synthetic(3, 4);\n"
                      "  loss net(x, ids); ranks 1; schedule gpipe; optimizer sgd(lr = constant(0.1));\n"
                      "  steps 1; seed 1;\n"
                      "}\n",
                      layer->members, layer->result, loss);
}

static Fixture load_layer(const Layer *layer, const char *loss) {
  Fixture f = {.arena = arena_create(), .diag = diag_create()};
  CompileOptions options = {.dtype = "f64", .ranks = -1, .microbatch = -1, .microbatches = -1, .steps = -1};
  f.ir = ir_create(f.arena, f.diag);
  DslProgram *program = dsl_load_text(f.arena, f.diag, "layer.pp", layer_text(f.arena, layer, loss));
  CHECK(program && elaborate_run(f.ir, program, &options) && simplify_run(f.ir) && ir_verify(f.ir));
  f.func = func_find(f.ir, ir_top(f.ir), "loss");
  diag_flush(f.diag);
  return f;
}

/* Elaborated and simplified; a null func after errors. */
static Fixture load_as(const Model *model, const char *dtype, const char *precision) {
  Fixture f = {.arena = arena_create(), .diag = diag_create()};
  f.ir = ir_create(f.arena, f.diag);
  Define defines[8];
  CompileOptions options = {.defines = defines, .dtype = dtype, .precision = precision, .ranks = 1, .microbatch = MICROBATCH,
                            .microbatches = MICROBATCHES, .steps = 2, .threads = 1};
  for (; options.n_defines < 8 && model->defines[options.n_defines]; options.n_defines++) {
    char *text = arena_strdup(f.arena, model->defines[options.n_defines]), *value = strchr(text, '=');
    *value = 0;
    defines[options.n_defines] = (Define){text, value + 1};
  }
  DslProgram *program = dsl_load(f.arena, f.diag, model->path);
  CHECK(program && elaborate_run(f.ir, program, &options) && simplify_run(f.ir) && ir_verify(f.ir));
  f.func = func_find(f.ir, ir_top(f.ir), "loss");
  diag_flush(f.diag);
  return f;
}

static Fixture load(const Model *model, const char *dtype) { return load_as(model, dtype, NULL); }

/* i32 data within the vocabulary, parameters small and away from 0. */
static void model_data(Machine *m, const char *source, Tensor *out) {
  OpVec sources = ir_ops(m->arena, ir_top(m->ir), OP_SOURCE);
  fill(out, source, 1000 * (int64_t)m->step + m->microbatch);
  for (int i = 0; i < sources.n; i++) {
    if (strcmp(op_string(m->arena, sources.at[i], "sym"), source)) continue;
    int64_t vocabulary = op_int(sources.at[i], "vocabulary", 0), limit = vocabulary ? vocabulary : 7;
    for (int64_t k = 0; k < out->n && type_dtype(out->type) == PP_I32; k++)
      out->at[k] = floor((noise((uint64_t)m->microbatch, k) + 1) / 2 * (double)(limit < 11 ? limit : 11));
  }
}

static Machine *model_machine(Ir *ir, Arena *arena) {
  Machine *m = noisy_machine(ir, arena);
  m->data = model_data;
  return m;
}

static double total_loss(Machine *m, Op func) {
  double sum = 0;
  machine_start_step(m);
  for (m->microbatch = 0; m->microbatch < MICROBATCHES; m->microbatch++) {
    interpret_func(m, func, 0, NULL, NULL);
    sum += m->losses[m->microbatch];
  }
  return sum;
}

/* The sum over stages. */
static double gradient_of(Machine *m, const char *name, int64_t element) {
  double sum = 0;
  for (int s = 0; s < m->n_stages; s++) {
    Tensor *g = machine_accumulator(m, name, s);
    if (g) sum += g->at[element];
  }
  return sum;
}

static double difference(Machine *m, Op loss, double *x) {
  double kept = *x, h = 1e-5;
  *x = kept + h;
  double above = total_loss(m, loss);
  *x = kept - h;
  double below = total_loss(m, loss);
  *x = kept;
  return (above - below) / (2 * h);
}

enum { PROBES = 2 };

/* `whole` has run a step; `forward` runs the loss alone. ‖a − b‖ / max(‖a‖, ‖b‖) over the probes. */
static double gradient_error(Machine *whole, Machine *forward, Op loss) {
  double wrong = 0, a = 0, b = 0;
  for (int i = 0; i < whole->params.n * PROBES; i++) {
    const char *name = whole->params.entries[i / PROBES].key;
    Tensor *p = machine_param(forward, name);
    int64_t at = (int64_t)((noise(str_hash(name, strlen(name)), i) + 1) / 2 * (double)p->n);
    double d = difference(forward, loss, &p->at[at]), g = gradient_of(whole, name, at);
    wrong += (d - g) * (d - g);
    a += d * d;
    b += g * g;
  }
  return sqrt(wrong) / sqrt(fmax(fmax(a, b), 1e-30));
}

static void check_gradients(const char *name, Fixture f, Fixture forward) {
  CHECK(autodiff_run(f.ir) && ir_verify(f.ir));
  Machine *m = model_machine(f.ir, f.arena);
  total_loss(m, func_find(f.ir, ir_top(f.ir), "microbatch"));
  double error = gradient_error(m, model_machine(forward.ir, forward.arena), forward.func);
  CHECK(error < 1e-6);
  if (!(error < 1e-6)) printf("  %s: error %g\n", name, error);
  diag_flush(f.diag);
  fixture_end(&f);
  fixture_end(&forward);
}

static void check_tasks(const Model *model, const char *precision) {
  Fixture f = load_as(model, "f32", precision);
  CHECK(check_split(&f, model_machine));
  diag_flush(f.diag);
  fixture_end(&f);
}

static void test_layers(void) {
  const char *loss = "sum(y * sin(y + 0.5))";
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
    check_gradients(layers[i].name, load_layer(&layers[i], loss), load_layer(&layers[i], loss));
}

/* A loss that is a pair. */
static void test_masked_loss(void) {
  const Layer masked = {"masked_cross_entropy", "", "h"};
  const char *loss = "masked_cross_entropy(y, i - 1)";
  check_gradients(masked.name, load_layer(&masked, loss), load_layer(&masked, loss));
}

static void test_models(void) {
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    check_gradients(models[i].name, load(&models[i], "f64"), load(&models[i], "f64"));
}

static void test_tasks(void) {
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) check_tasks(&models[i], "f32");
}

/* Casts of parameters stand before the loop. */
static void test_prepared_tasks(void) {
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) check_tasks(&models[i], "bf16");
}

int main(void) {
  TEST(test_layers);
  TEST(test_masked_loss);
  TEST(test_models);
  TEST(test_tasks);
  TEST(test_prepared_tasks);
  return test_end();
}
