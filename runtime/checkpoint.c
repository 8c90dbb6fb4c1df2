/* Parameters in and out: start from a seed or a safetensors file; rank 0 gathers what the owners hold
 * and writes one file, or hashes it.
 * Gathering is collective: every rank walks all parameters in the order of their names. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t width_of(int dtype) { return dtype == PP_F64 ? 8 : 4; }

static uint64_t n_elements(const pp_parameter *p) {
  uint64_t n = 1;
  for (int i = 0; i < p->n_dims; i++) n *= (uint64_t)p->dims[i];
  return n;
}

static size_t bytes_of(const pp_parameter *p) { return (size_t)n_elements(p) * width_of(p->dtype); }

/* --- order of names ------------------------------------------------------------------------------- */

typedef struct {
  const char *name;
  int index;
} Named;

static int by_name(const void *a, const void *b) { return strcmp(((const Named *)a)->name, ((const Named *)b)->name); }

/* out_order: [n_parameters], or null memory on failure. */
static int *order_by_name(const pp_program *program) {
  size_t n = (size_t)program->n_parameters;
  int *order = malloc((n + 1) * sizeof *order);
  Named *named = malloc((n + 1) * sizeof *named);
  if (order && named) {
    for (size_t i = 0; i < n; i++) named[i] = (Named){program->parameters[i].name, (int)i};
    qsort(named, n, sizeof *named, by_name);
    for (size_t i = 0; i < n; i++) order[i] = named[i].index;
  } else {
    free(order);
    order = NULL;
  }
  free(named);
  return order;
}

static const pp_held *held_of(const pp_rank *rank, int parameter, int owned) {
  for (int i = 0; i < rank->program->n_held; i++) {
    const pp_held *h = &rank->program->held[i];
    if (h->parameter == parameter && (!owned || h->owned)) return h;
  }
  return NULL;
}

/* --- initial values -------------------------------------------------------------------------------- */

static void store(void *dst, int dtype, int64_t at, const double *values, int64_t n) {
  if (dtype == PP_F64) {
    memcpy((double *)dst + at, values, (size_t)n * sizeof *values);
    return;
  }
  for (int64_t i = 0; i < n; i++) ((float *)dst)[at + i] = (float)values[i];
}

static void draw_values(const pp_parameter *p, uint64_t seed, uint64_t first, double *values, int64_t n) {
  uint64_t stream = pp_hash_name(p->name);
  switch ((pp_init_kind)p->init) {
    case PP_INIT_NORMAL:
      pp_random_fill_normal(seed, stream, first, values, n);
      for (int64_t i = 0; i < n; i++) values[i] = p->a + p->b * values[i];
      return;
    case PP_INIT_UNIFORM:
      pp_random_fill_unit(seed, stream, first, values, n);
      for (int64_t i = 0; i < n; i++) values[i] = p->a + (p->b - p->a) * values[i];
      return;
    case PP_INIT_ONES:
      for (int64_t i = 0; i < n; i++) values[i] = 1;
      return;
    case PP_INIT_ZEROS:
    case PP_INIT_KIND_COUNT: break;
  }
  memset(values, 0, (size_t)n * sizeof *values);
}

/* Elements from number `first` on. */
static void fill_from_seed(const pp_rank *rank, const pp_parameter *p, void *dst, int64_t first, int64_t n) {
  double values[512];
  for (int64_t at = 0; at < n; at += 512) {
    int64_t part = n - at < 512 ? n - at : 512;
    draw_values(p, rank->options->seed, (uint64_t)(first + at), values, part);
    store(dst, p->dtype, at, values, part);
  }
}

/* --- from a file ----------------------------------------------------------------------------------- */

static void format_shape(int n_dims, const int64_t *dims, char *out_text, size_t text_bytes) {
  size_t used = (size_t)snprintf(out_text, text_bytes, "[");
  for (int i = 0; i < n_dims && i < PP_MAX_RANK && used + 24 < text_bytes; i++) {
    used += (size_t)snprintf(out_text + used, text_bytes - used, "%s%lld", i ? ", " : "", (long long)dims[i]);
  }
  snprintf(out_text + used, text_bytes - used, n_dims > PP_MAX_RANK ? ", …]" : "]");
}

static int same_shape(const pp_parameter *p, const pp_tensor_entry *e) {
  if (p->n_dims != e->n_dims) return 0;
  return memcmp(p->dims, e->dims, (size_t)p->n_dims * sizeof *p->dims) == 0;
}

static int is_transposed(const pp_parameter *p, const pp_tensor_entry *e) {
  return p->n_dims == 2 && e->n_dims == 2 && p->dims[0] == e->dims[1] && p->dims[1] == e->dims[0];
}

/* Width of the element types that are converted; 0 for the others. */
static size_t float_width(const char *dtype) {
  if (strcmp(dtype, "F64") == 0) return 8;
  if (strcmp(dtype, "F32") == 0) return 4;
  return strcmp(dtype, "F16") == 0 || strcmp(dtype, "BF16") == 0 ? 2 : 0;
}

static pp_status check_tensor(pp_rank *rank, const pp_parameter *p, const pp_tensor_entry *e) {
  char wanted[256], found[256];
  format_shape(p->n_dims, p->dims, wanted, sizeof wanted);
  if (!same_shape(p, e)) {
    format_shape(e->n_dims, e->dims, found, sizeof found);
    return pp_fail(rank, PP_EXIT_INPUT, "%s: %s is %s in the file and %s in the model%s", rank->options->init, p->name, found,
                   wanted, is_transposed(p, e) ? "; transposed?" : "");
  }
  if (!float_width(e->dtype)) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s: %s has elements of type %s; F64, F32, F16 and BF16 are read", rank->options->init,
                   p->name, e->dtype);
  }
  return PP_OK;
}

static void append_name(char *text, size_t text_bytes, int count, const char *name) {
  size_t used = strlen(text);
  if (count <= 4) snprintf(text + used, text_bytes - used, "%s%.120s", count > 1 ? ", " : "", name);
  if (count == 5) snprintf(text + used, text_bytes - used, ", …");
}

static int is_parameter(const pp_program *program, const int *order, const char *name) {
  size_t low = 0, high = (size_t)program->n_parameters;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int difference = strcmp(program->parameters[order[middle]].name, name);
    if (difference == 0) return 1;
    if (difference < 0) low = middle + 1;
    else high = middle;
  }
  return 0;
}

/* Names of the file that the model doesn't have: buffers, or parameters under another name. */
static int list_extra(const pp_rank *rank, const int *order, char *out_text, size_t text_bytes) {
  int n = 0;
  out_text[0] = 0;
  for (size_t i = 0; i < pp_tensors_count(rank->init); i++) {
    const char *name = pp_tensors_at(rank->init, i)->name;
    if (!is_parameter(rank->program, order, name)) append_name(out_text, text_bytes, ++n, name);
  }
  return n;
}

static int list_missing(const pp_rank *rank, char *out_text, size_t text_bytes) {
  int n = 0;
  out_text[0] = 0;
  for (int i = 0; i < rank->program->n_parameters; i++) {
    const char *name = rank->program->parameters[i].name;
    if (!pp_tensors_find(rank->init, name)) append_name(out_text, text_bytes, ++n, name);
  }
  return n;
}

/* A missing parameter is an error; a tensor more than the model has is a warning (files of GPT-2 hold masks). */
static pp_status check_names(pp_rank *rank, const int *order) {
  char missing[640], extra[640];
  int n_missing = list_missing(rank, missing, sizeof missing), n_extra = list_extra(rank, order, extra, sizeof extra);
  const char *path = rank->options->init;
  if (n_missing && n_extra) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s: %d of %d parameters are missing: %s; %d of its tensors are not in the model: %s",
                   path, n_missing, rank->program->n_parameters, missing, n_extra, extra);
  }
  if (n_missing) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s: %d of %d parameters are missing: %s", path, n_missing,
                   rank->program->n_parameters, missing);
  }
  if (n_extra && rank->program->rank == 0) {
    pp_warn(rank, "%s: %d tensors are not in the model and not read: %s", path, n_extra, extra);
  }
  return PP_OK;
}

/* Every rank checks the whole file, so that all find the same error, or none. */
static pp_status open_init(pp_rank *rank) {
  char text[1024];
  const pp_program *program = rank->program;
  if (!pp_tensors_open(rank->options->init, &rank->init, text, sizeof text)) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s", text);
  }
  int *order = order_by_name(program);
  if (!order) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  pp_status status = check_names(rank, order);
  free(order);
  for (int i = 0; status == PP_OK && i < program->n_parameters; i++) {
    status = check_tensor(rank, &program->parameters[i], pp_tensors_find(rank->init, program->parameters[i].name));
  }
  return status;
}

static double half_value(uint16_t half) {
  int exponent = half >> 10 & 31;
  double mantissa = half & 1023, sign = half & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
  return sign * (exponent ? ldexp(mantissa + 1024, exponent - 25) : ldexp(mantissa, -24));
}

static double convert_one(const char *dtype, const unsigned char *from) {
  uint16_t narrow;
  uint32_t bits;
  float single;
  double value;
  if (strcmp(dtype, "F64") == 0) {
    memcpy(&value, from, 8);
    return value;
  }
  if (strcmp(dtype, "F32") == 0) {
    memcpy(&single, from, 4);
    return single;
  }
  memcpy(&narrow, from, 2);
  if (strcmp(dtype, "F16") == 0) return half_value(narrow);
  bits = (uint32_t)narrow << 16;
  memcpy(&single, &bits, 4);
  return single;
}

static int is_same_type(const pp_parameter *p, const pp_tensor_entry *e) {
  return strcmp(e->dtype, p->dtype == PP_F64 ? "F64" : "F32") == 0;
}

static int fill_converted(const pp_rank *rank, const pp_parameter *p, const pp_tensor_entry *e, void *dst, int64_t first, int64_t n) {
  unsigned char bytes[512 * 8];
  double values[512];
  size_t width = float_width(e->dtype);
  for (int64_t at = 0; at < n; at += 512) {
    int64_t part = n - at < 512 ? n - at : 512;
    if (!pp_tensors_read(rank->init, e->begin + (uint64_t)(first + at) * width, bytes, (size_t)part * width)) return 0;
    for (int64_t i = 0; i < part; i++) values[i] = convert_one(e->dtype, bytes + (size_t)i * width);
    store(dst, p->dtype, at, values, part);
  }
  return 1;
}

static pp_status fill_from_file(pp_rank *rank, const pp_parameter *p, void *dst, int64_t first, int64_t n) {
  const pp_tensor_entry *e = pp_tensors_find(rank->init, p->name);
  size_t width = width_of(p->dtype);
  int fine = is_same_type(p, e) ? pp_tensors_read(rank->init, e->begin + (uint64_t)first * width, dst, (size_t)n * width)
                                : fill_converted(rank, p, e, dst, first, n);
  if (fine) return PP_OK;
  return pp_fail(rank, PP_EXIT_INPUT, "%s: can't read %s: %s", rank->options->init, p->name,
                 errno ? strerror(errno) : "the file has become shorter");
}

static pp_status allocate_kept(pp_rank *rank) {
  size_t total = 1;
  for (int i = 0; i < rank->program->n_held; i++) {
    const pp_held *h = &rank->program->held[i];
    if (h->owned) total += bytes_of(&rank->program->parameters[h->parameter]);
  }
  rank->kept = calloc(1, total);
  return rank->kept ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "no memory for %zu bytes of gradients (--save-gradients)", total);
}

static pp_status start_one(pp_rank *rank, const pp_held *h, unsigned char *buffer) {
  const pp_parameter *p = &rank->program->parameters[h->parameter];
  unsigned char *value = pp_address_in(rank, h->value_space, h->value);
  size_t width = width_of(p->dtype), total = bytes_of(p);
  for (size_t at = 0; at < total; at += PP_CHUNK_BYTES) {
    size_t size_bytes = total - at < PP_CHUNK_BYTES ? total - at : PP_CHUNK_BYTES;
    int64_t first = (int64_t)(at / width), n = (int64_t)(size_bytes / width);
    if (rank->init) PP_TRY(fill_from_file(rank, p, buffer, first, n));
    else fill_from_seed(rank, p, buffer, first, n);
    PP_TRY(rank->program->device->write(rank, value + at, buffer, size_bytes));
    if (pp_failing(rank)) return PP_STOPPED;
  }
  return PP_OK;
}

static pp_status start_loss_scale(pp_rank *rank) {
  const pp_program *program = rank->program;
  double first = program->first_loss_scale;
  const double scale[PP_LOSS_SCALE_SIZE] = {[PP_LOSS_SCALE_NEXT] = first, [PP_LOSS_SCALE_LAST] = first};
  return first != 0 ? program->device->write(rank, pp_address(rank, program->loss_scale), scale, sizeof scale) : PP_OK;
}

pp_status pp_parameters_start(pp_rank *rank) {
  const pp_program *program = rank->program;
  if (rank->options->init) PP_TRY(open_init(rank));
  if (rank->options->save_gradients && rank->options->steps > 0) PP_TRY(allocate_kept(rank));
  unsigned char *buffer = malloc(PP_CHUNK_BYTES);
  pp_status status = buffer ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (int i = 0; status == PP_OK && i < program->n_held; i++) status = start_one(rank, &program->held[i], buffer);
  if (status == PP_OK) status = start_loss_scale(rank);
  free(buffer);
  pp_tensors_close(rank->init);
  rank->init = NULL;
  return status;
}

/* --- gathering -------------------------------------------------------------------------------------- */

/* What to do on rank 0 with the next bytes of a tensor. */
typedef pp_status Sink(pp_rank *rank, void *context, const pp_parameter *p, unsigned char *bytes, size_t n);

typedef enum { GATHER_VALUES, GATHER_GRADIENTS, GATHER_STATE } What;

/* All bytes of one tensor, from its owner to rank 0's sink. `own` is null on ranks that don't own it. */
static pp_status gather_one(pp_rank *rank, const pp_parameter *p, What what, const unsigned char *own, unsigned char *buffer,
                            Sink *sink, void *context) {
  size_t total = bytes_of(p);
  int is_owner = rank->program->rank == p->owner, takes = rank->program->rank == 0;
  for (size_t at = 0; at < total && (is_owner || takes); at += PP_CHUNK_BYTES) {
    size_t n = total - at < PP_CHUNK_BYTES ? total - at : PP_CHUNK_BYTES;
    if (is_owner && what == GATHER_GRADIENTS) memcpy(buffer, own + at, n); /* kept on the host */
    else if (is_owner) PP_TRY(rank->program->device->read(rank, buffer, own + at, n));
    if (is_owner && !takes) PP_TRY(rank->transport->give(rank, buffer, n));
    if (takes && !is_owner) PP_TRY(rank->transport->take(rank, p->owner, buffer, n));
    if (takes) PP_TRY(sink(rank, context, p, buffer, n));
  }
  return PP_OK;
}

/* Where a gradient was kept: owned tensors follow one another in the order of `held`. */
static const unsigned char *kept_of(const pp_rank *rank, const pp_held *held) {
  size_t at = 0;
  for (const pp_held *h = rank->program->held; h < held; h++) {
    if (h->owned) at += bytes_of(&rank->program->parameters[h->parameter]);
  }
  return rank->kept + at;
}

static const unsigned char *own_bytes(const pp_rank *rank, int parameter, What what, int state) {
  const pp_held *h = held_of(rank, parameter, what != GATHER_VALUES);
  if (!h) return NULL;
  if (what == GATHER_VALUES) return pp_address_in(rank, h->value_space, h->value);
  if (what == GATHER_GRADIENTS) return kept_of(rank, h);
  return pp_address_in(rank, PP_ARENA, h->states[state]);
}

static int takes_part(const pp_parameter *p, What what) { return what == GATHER_VALUES || p->trainable; }

/* Every rank finds the fault of a plan that names an owner without the tensor, before it waits for it. */
static pp_status gather(pp_rank *rank, int parameter, What what, int state, unsigned char *buffer, Sink *sink, void *context) {
  const pp_parameter *p = &rank->program->parameters[parameter];
  if (!takes_part(p, what)) return PP_OK;
  const unsigned char *own = rank->program->rank == p->owner ? own_bytes(rank, parameter, what, state) : NULL;
  if (rank->program->rank == p->owner && !own) return pp_fail(rank, PP_EXIT_BUG, "%s: its owner does not hold it", p->name);
  return gather_one(rank, p, what, own, buffer, sink, context);
}

static pp_status gather_named(pp_rank *rank, What what, Sink *sink, void *context) {
  int *order = order_by_name(rank->program);
  unsigned char *buffer = malloc(PP_CHUNK_BYTES);
  pp_status status = order && buffer ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (int i = 0; status == PP_OK && i < rank->program->n_parameters; i++) {
    status = gather(rank, order[i], what, 0, buffer, sink, context);
  }
  free(order);
  free(buffer);
  return status;
}

pp_status pp_gradients_keep(pp_rank *rank) {
  const pp_program *program = rank->program;
  size_t at = 0;
  rank->keeps = 0;
  for (int i = 0; i < program->n_held; i++) {
    const pp_held *h = &program->held[i];
    const pp_parameter *p = &program->parameters[h->parameter];
    if (!h->owned) continue;
    const void *gradient = pp_address_in(rank, h->gradient_space, h->gradient);
    if (p->trainable) PP_TRY(program->device->read(rank, rank->kept + at, gradient, bytes_of(p)));
    at += bytes_of(p);
  }
  return PP_OK;
}

/* --- writing ---------------------------------------------------------------------------------------- */

typedef struct {
  pp_file file;
  double divisor; /* of gradients; 0: values are written as they are */
} Writer;

/* The quotient is taken in f64 and rounded once to the gradient's type. */
static void divide(const pp_parameter *p, unsigned char *bytes, size_t n, double divisor) {
  for (size_t i = 0; i < n / width_of(p->dtype); i++) {
    if (p->dtype == PP_F64) ((double *)(void *)bytes)[i] /= divisor;
    else ((float *)(void *)bytes)[i] = (float)((double)((float *)(void *)bytes)[i] / divisor);
  }
}

static pp_status sink_write(pp_rank *rank, void *context, const pp_parameter *p, unsigned char *bytes, size_t n) {
  const Writer *w = context;
  if (w->divisor != 0) divide(p, bytes, n, w->divisor);
  return pp_file_write(rank, &w->file, bytes, n);
}

/* The header's text: names in order, offsets one after the other, padded to 8 bytes with blanks. */
static char *make_header(const pp_program *program, const int *order, What what, size_t *out_bytes) {
  size_t room = 64, used = 0;
  uint64_t at = 0;
  for (int i = 0; i < program->n_parameters; i++) room += strlen(program->parameters[i].name) + 96 + 24 * PP_MAX_RANK;
  char *text = malloc(room);
  if (!text) return NULL;
  used += (size_t)snprintf(text, room, "{\"__metadata__\":{\"format\":\"pt\"}");
  for (int i = 0; i < program->n_parameters; i++) {
    const pp_parameter *p = &program->parameters[order[i]];
    char shape[24 * PP_MAX_RANK + 8];
    if (!takes_part(p, what)) continue;
    format_shape(p->n_dims, p->dims, shape, sizeof shape);
    used += (size_t)snprintf(text + used, room - used, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}", p->name,
                             p->dtype == PP_F64 ? "F64" : "F32", shape, (unsigned long long)at,
                             (unsigned long long)(at + bytes_of(p)));
    at += bytes_of(p);
  }
  used += (size_t)snprintf(text + used, room - used, "}");
  while (used % 8) text[used++] = ' ';
  *out_bytes = used;
  return text;
}

static pp_status write_header(pp_rank *rank, const Writer *w, What what) {
  size_t n = 0;
  unsigned char prefix[8];
  int *order = order_by_name(rank->program);
  char *text = order ? make_header(rank->program, order, what, &n) : NULL;
  free(order);
  if (!text) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)n >> (8 * i));
  pp_status status = pp_file_write(rank, &w->file, prefix, sizeof prefix);
  if (status == PP_OK) status = pp_file_write(rank, &w->file, text, n);
  free(text);
  return status;
}

static pp_status save(pp_rank *rank, const char *path, What what, double divisor) {
  Writer w = {.divisor = divisor};
  pp_status status = PP_OK;
  int writes = rank->program->rank == 0;
  if (writes) status = pp_file_open(rank, &w.file, path);
  if (writes && status == PP_OK) status = write_header(rank, &w, what);
  if (status == PP_OK) status = gather_named(rank, what, sink_write, &w);
  if (writes && status == PP_OK) status = pp_file_publish(rank, &w.file);
  if (writes) pp_file_destroy(rank, &w.file);
  PP_TRY(status);
  return rank->transport->barrier(rank); /* nobody goes on before the file is there */
}

pp_status pp_parameters_save(pp_rank *rank, const char *path) { return save(rank, path, GATHER_VALUES, 0); }

pp_status pp_gradients_save(pp_rank *rank, const char *path) {
  double divisor = rank->seen.control[PP_CONTROL_DIVISOR];
  return save(rank, path, GATHER_GRADIENTS, divisor != 0 ? divisor : 1);
}

/* Each file would take the place of the one before. */
static pp_status check_apart(pp_rank *rank) {
  const struct { const char *name, *path; } files[] = {
      {"--save", rank->options->save}, {"--save-gradients", rank->options->save_gradients}, {"--trace", rank->options->trace}};
  for (int i = 1; i < 3; i++) {
    for (int k = 0; k < i; k++) {
      if (!files[i].path || !files[k].path || strcmp(files[i].path, files[k].path) != 0) continue;
      return pp_fail(rank, PP_EXIT_USAGE, "%s and %s name one file: %s", files[k].name, files[i].name, files[i].path);
    }
  }
  return PP_OK;
}

pp_status pp_save_check(pp_rank *rank) {
  if (rank->program->rank != 0) return PP_OK;
  PP_TRY(check_apart(rank));
  if (rank->options->save) PP_TRY(pp_file_check(rank, "--save", rank->options->save));
  if (rank->options->save_gradients) PP_TRY(pp_file_check(rank, "--save-gradients", rank->options->save_gradients));
  return PP_OK;
}

/* --- hashes ----------------------------------------------------------------------------------------- */

static pp_status sink_hash(pp_rank *rank, void *context, const pp_parameter *p, unsigned char *bytes, size_t n) {
  (void)rank;
  (void)p;
  pp_sha256_add(context, bytes, n);
  return PP_OK;
}

/* An optimizer tensor's name is its parameter's and the state's: "wte.weight.m". */
typedef struct {
  char *name;
  int parameter, state;
} State;

static int by_state_name(const void *a, const void *b) { return strcmp(((const State *)a)->name, ((const State *)b)->name); }

static void states_destroy(State *states, size_t n) {
  for (size_t i = 0; states && i < n; i++) free(states[i].name);
  free(states);
}

static State *list_states(const pp_program *program, size_t *out_n) {
  size_t n = (size_t)program->n_parameters * (size_t)program->n_states;
  State *states = calloc(n + 1, sizeof *states);
  int fine = states != NULL;
  for (size_t i = 0; fine && i < n; i++) {
    State *s = &states[i];
    s->parameter = (int)(i / (size_t)program->n_states);
    s->state = (int)(i % (size_t)program->n_states);
    const char *name = program->parameters[s->parameter].name, *state = program->state_names[s->state];
    size_t room = strlen(name) + strlen(state) + 2;
    s->name = malloc(room);
    fine = s->name != NULL;
    if (fine) snprintf(s->name, room, "%s.%s", name, state);
  }
  *out_n = n;
  if (fine) {
    qsort(states, n, sizeof *states, by_state_name);
    return states;
  }
  states_destroy(states, n);
  return NULL;
}

static pp_status gather_states(pp_rank *rank, pp_sha256 *hash) {
  size_t n = 0;
  State *states = list_states(rank->program, &n);
  unsigned char *buffer = malloc(PP_CHUNK_BYTES);
  pp_status status = states && buffer ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (size_t i = 0; status == PP_OK && i < n; i++) {
    status = gather(rank, states[i].parameter, GATHER_STATE, states[i].state, buffer, sink_hash, hash);
  }
  states_destroy(states, n);
  free(buffer);
  return status;
}

static pp_status hash_one(pp_rank *rank, int of_states, char out_text[65]) {
  pp_sha256 *hash = pp_sha256_create();
  if (!hash) return pp_fail(rank, PP_EXIT_FAILED, "no SHA-256 in libcrypto");
  pp_status status = of_states ? gather_states(rank, hash) : gather_named(rank, GATHER_VALUES, sink_hash, hash);
  char text[65];
  pp_sha256_finish(hash, text);
  if (rank->program->rank == 0) memcpy(out_text, text, sizeof text);
  return status;
}

pp_status pp_hashes(pp_rank *rank) {
  PP_TRY(hash_one(rank, 0, rank->board->parameters_hash));
  return hash_one(rank, 1, rank->board->optimizer_hash);
}
