/* One launch for many tensors.
 *
 * In: a task's statements. Out: groups of them whose kernels differ in nothing but the number of elements and
 * may run at the place of the first one: no statement between touches what they touch; and for a group a
 * kernel. Two forms: elementwise outputs (a thread for each element, or for four neighbouring ones) and
 * sums over everything (half a warp for each chunk of 65,536 elements; a second launch folds the chunks). Blocks
 * are dealt to tensors in proportion to their sizes, which are static, so a block finds its tensor by
 * comparisons with constants; tensors are parameters like any others. Bits are those of single launches. */
#include "codegen/cuda/many.h"

#include "codegen/cuda/kernel_form.h"

enum {
  BLOCK = 256,
  TEAMS = 8,             /* half warps in a block of sums */
  MAX_POINTERS = 480,    /* of a launch: less than 4 KiB of arguments */
  MAX_MEMBERS = 160
};

/* --- kernels that differ in their size only -------------------------------------------------------------------- */

static bool is_sum(const PlanKernel *k) {
  int v = k->outputs[0];
  return k->n_outputs == 1 && v >= k->n_inputs && k->nodes[v - k->n_inputs].op == PLAN_OP_REDUCE_SUM && plan_elements(kernel_value_type(k, v)) == 1;
}

/* Elements of the tensors that differ in size. */
static int64_t size_of(const PlanKernel *k) {
  return is_sum(k) ? plan_elements(kernel_value_type(k, k->nodes[k->outputs[0] - k->n_inputs].in[0])) : plan_elements(kernel_value_type(k, k->outputs[0]));
}

static void describe_type(Str *out, const PlanType *t, int64_t size) {
  str_printf(out, ":%d", (int)t->dtype);
  if (plan_elements(t) == size) str_puts(out, "[n]");
  else
    for (int i = 0; i < t->rank; i++) str_printf(out, "[%lld]", (long long)t->dims[i]);
}

/* At element i of what is full, its operands are needed at element i, or anywhere when they aren't full. */
static bool keeps_place(const PlanKernel *k, const PlanNode *n, int64_t size) {
  bool full = plan_elements(&n->type) == size, reads_full = false;
  for (int i = 0; i < n->n_in; i++) reads_full |= plan_elements(kernel_value_type(k, n->in[i])) == size;
  if (!full && !reads_full) return n->op != PLAN_OP_RANDOM && kernel_ops[n->op].class != CLASS_REDUCE;
  if (kernel_ops[n->op].class == CLASS_MAP || n->op == PLAN_OP_CONSTANT) return true;
  if (n->op == PLAN_OP_RESHAPE) return full && reads_full;
  return n->op == PLAN_OP_BROADCAST && plan_elements(kernel_value_type(k, n->in[0])) == 1;
}

static void describe_node(Str *out, const PlanKernel *k, const PlanNode *n, int64_t size) {
  uint64_t bits;
  memcpy(&bits, &n->attrs.value, sizeof bits);
  str_printf(out, " %d", (int)n->op);
  describe_type(out, &n->type, size);
  for (int i = 0; i < n->n_in; i++) str_printf(out, ",%d", n->in[i]);
  str_printf(out, ";%llx;%lld;%s", (unsigned long long)bits, (long long)n->attrs.integer, n->attrs.predicate ? n->attrs.predicate : "");
  if (n->op == PLAN_OP_RESHAPE || plan_elements(kernel_value_type(k, k->n_inputs + (int)(n - k->nodes))) == size) return;
  for (int i = 0; i < n->attrs.n_axes && kernel_ops[n->op].class != CLASS_REDUCE; i++)
    str_printf(out, "|%lld,%lld", (long long)n->attrs.axes[i], (long long)(n->attrs.limits ? n->attrs.limits[i] : 0));
}

/* Everything of a kernel but its size; null: it has no part in a group. */
static const char *describe(Arena *arena, const PlanKernel *k) {
  int64_t size = size_of(k);
  bool sum = is_sum(k), fits = size > 1 && size <= INT32_MAX - CHUNK && !k->uses_call;
  Str out = {0};
  str_printf(&out, "%s%s", sum ? "sum" : "map", !sum && size % PACK == 0 ? " packs" : "");
  for (int i = 0; i < k->n_inputs; i++) describe_type(&out, &k->inputs[i], size);
  for (int i = 0; i < k->n_nodes && fits; i++) {
    const PlanNode *n = &k->nodes[i];
    fits = keeps_place(k, n, size) || (sum && k->n_inputs + i == k->outputs[0]);
    describe_node(&out, k, n, size);
  }
  for (int o = 0; o < k->n_outputs; o++) {
    fits &= sum || plan_elements(kernel_value_type(k, k->outputs[o])) == size;
    str_printf(&out, ">%d", k->outputs[o]);
  }
  const char *text = fits ? arena_strndup(arena, str_text(&out), out.length) : NULL;
  str_free(&out);
  return text;
}

/* --- statements that may run together ------------------------------------------------------------------------------ */

static bool same_place(const PlanBuffer *a, const PlanBuffer *b) { return a->place == b->place && a->index == b->index && a->sub == b->sub; }

static bool overlap(const PlanTask *task, int x, int y) {
  const PlanBuffer *a = &task->buffers[x], *b = &task->buffers[y];
  if (a->place != PLAN_SCRATCH || b->place != PLAN_SCRATCH) return same_place(a, b);
  return a->index < b->index + plan_bytes(&b->type) && b->index < a->index + plan_bytes(&a->type);
}

static bool touches(const PlanTask *task, int n, const int *buffers, int buffer) {
  for (int i = 0; i < n; i++)
    if (overlap(task, buffers[i], buffer)) return true;
  return false;
}

/* Whether one of the two writes what the other reads or writes. */
static bool conflict(const PlanTask *task, const PlanStatement *a, const PlanStatement *b) {
  for (int i = 0; i < a->n_out; i++)
    if (touches(task, b->n_in, b->in, a->out[i]) || touches(task, b->n_out, b->out, a->out[i])) return true;
  for (int i = 0; i < b->n_out; i++)
    if (touches(task, a->n_in, a->in, b->out[i])) return true;
  if (a->workspace >= 0 && (touches(task, b->n_in, b->in, a->workspace) || touches(task, b->n_out, b->out, a->workspace))) return true;
  return b->workspace >= 0 && (touches(task, a->n_in, a->in, b->workspace) || touches(task, a->n_out, a->out, b->workspace));
}

/* --- groups ------------------------------------------------------------------------------------------------------------ */

/* Parameters of the launch: a buffer that all members share comes once; where each member's output is its input, that comes once. */
typedef struct {
  int n_slots;            /* inputs, then outputs, of the kernel */
  int *alias;             /* per slot: the earlier slot whose buffer it is, in every member; else itself */
  bool *shared;           /* per slot: one buffer for all members */
  int control;            /* the slot of the control vector in guarded kernels; -1: none */
} Slots;

static int buffer_of(const PlanStatement *s, int slot) { return slot < s->n_in ? s->in[slot] : s->out[slot - s->n_in]; }

int cuda_control_input(const PlanTask *task, const PlanStatement *s) {
  for (int i = 0; i < s->n_in && task->kind == PP_UPDATE; i++)
    if (task->buffers[s->in[i]].place == PLAN_CONTROL) return i;
  return -1;
}

static Slots find_slots(Arena *arena, const PlanTask *task, int n, const int *members) {
  const PlanStatement *first = &task->statements[members[0]];
  Slots s = {.n_slots = first->n_in + first->n_out, .control = cuda_control_input(task, first)};
  s.alias = arena_alloc_array(arena, (size_t)s.n_slots, sizeof(int));
  s.shared = arena_alloc_array(arena, (size_t)s.n_slots, sizeof(bool));
  for (int i = 0; i < s.n_slots; i++) {
    s.alias[i] = i;
    s.shared[i] = n > 1;
    for (int m = 1; m < n; m++) s.shared[i] &= buffer_of(&task->statements[members[m]], i) == buffer_of(first, i);
    for (int j = 0; j < i && s.alias[i] == i; j++) {
      bool same = true;
      for (int m = 0; m < n; m++) {
        const PlanStatement *x = &task->statements[members[m]];
        same &= same_place(&task->buffers[buffer_of(x, i)], &task->buffers[buffer_of(x, j)]);
      }
      if (same) s.alias[i] = s.alias[j];
    }
  }
  if (s.control >= 0 && !s.shared[s.control]) s.control = -1;
  return s;
}

/* A group that still takes members. */
typedef struct {
  const char *description;
  int n, members[MAX_MEMBERS];
  int64_t n_chunks;       /* of all members */
} Open;

typedef VEC(Open *) Opens;

static bool may_join(const PlanTask *task, const Open *open, int statement, int64_t n_chunks) {
  const PlanStatement *s = &task->statements[statement];
  if (open->n_chunks + n_chunks > PP_CUDA_PARTIALS) return false;
  if (open->n == MAX_MEMBERS || (open->n + 1) * (s->n_in + s->n_out) > MAX_POINTERS) return false;
  for (int i = open->members[0]; i < statement; i++)
    if (conflict(task, &task->statements[i], s)) return false;
  return true;
}

static void add_statement(Arena *arena, const PlanTask *task, Opens *opens, const char *description, int statement, int64_t n_chunks) {
  for (int i = opens->n - 1; i >= 0; i--) {
    Open *open = opens->at[i];
    if (strcmp(open->description, description)) continue;
    if (!may_join(task, open, statement, n_chunks)) break;
    open->members[open->n++] = statement;
    open->n_chunks += n_chunks;
    return;
  }
  Open *open = arena_alloc(arena, sizeof *open);
  *open = (Open){.description = description, .n = 1, .members = {statement}, .n_chunks = n_chunks};
  VEC_PUSH(arena, opens, open);
}

static CudaGroup close_group(Arena *arena, const Plan *plan, const PlanTask *task, const Open *open) {
  Slots slots = find_slots(arena, task, open->n, open->members);
  CudaGroup group = {.n = open->n};
  int *statements = arena_alloc_array(arena, (size_t)open->n, sizeof(int)), *arguments = arena_alloc_array(arena, (size_t)(open->n * slots.n_slots), sizeof(int));
  Str key = {0};
  str_printf(&key, "%s%d %s", task->kind == PP_UPDATE ? "guarded " : "", slots.control, open->description);
  for (int i = 0; i < slots.n_slots; i++) str_printf(&key, " %d%s", slots.alias[i], slots.shared[i] ? "s" : "");
  for (int m = 0; m < open->n; m++) {
    statements[m] = open->members[m];
    str_printf(&key, " %lld", (long long)size_of(&plan->kernels[task->statements[open->members[m]].kernel]));
  }
  for (int m = 0; m < open->n; m++)
    for (int i = 0; i < slots.n_slots; i++)
      if (slots.alias[i] == i && (m == 0 || !slots.shared[i])) {
        int buffer = buffer_of(&task->statements[open->members[m]], i);
        for (int j = i + 1; j < slots.n_slots; j++) /* the one that is written */
          if (slots.alias[j] == i) buffer = buffer_of(&task->statements[open->members[m]], j);
        arguments[group.n_arguments++] = buffer;
      }
  group.statements = statements, group.arguments = arguments;
  group.key = arena_strndup(arena, str_text(&key), key.length);
  str_free(&key);
  return group;
}

CudaGroups cuda_groups_find(Arena *arena, const Plan *plan, const PlanTask *task) {
  CudaGroups result = {.of = arena_alloc_array(arena, (size_t)task->n_statements, sizeof(int))};
  if (task->kind != PP_UPDATE && task->kind != PP_FINISH) return result;
  Opens opens = {0};
  for (int i = 0; i < task->n_statements; i++) {
    if (task->statements[i].op != PLAN_OP_KERNEL) continue;
    const PlanKernel *k = &plan->kernels[task->statements[i].kernel];
    const char *description = describe(arena, k);
    if (description) add_statement(arena, task, &opens, description, i, is_sum(k) ? (size_of(k) + CHUNK - 1) / CHUNK : 0);
  }
  CudaGroup *groups = arena_alloc_array(arena, (size_t)opens.n, sizeof *groups);
  for (int i = 0; i < opens.n; i++) {
    if (opens.at[i]->n < 2) continue;
    groups[result.n++] = close_group(arena, plan, task, opens.at[i]);
    for (int m = 0; m < opens.at[i]->n; m++) result.of[opens.at[i]->members[m]] = result.n;
  }
  result.groups = groups;
  return result;
}

/* --- the kernel of a group --------------------------------------------------------------------------------------------- */

typedef struct {
  Arena *arena;
  const CudaGroup *group;
  const PlanKernel *k;         /* of the first member */
  int64_t *sizes;
  Slots slots;
  const char *const *names;    /* per slot: the member's pointer inside the kernel */
  const char **parameters;     /* [member * n_slots + slot] */
  CudaParameter *list;
  int n_list;
} Many;

static bool is_written(const Many *g, int slot) {
  for (int i = g->k->n_inputs; i < g->slots.n_slots; i++)
    if (g->slots.alias[i] == slot) return true;
  return false;
}

static const char *slot_type(const Many *g, int slot) {
  const PlanType *t = slot < g->k->n_inputs ? &g->k->inputs[slot] : kernel_value_type(g->k, g->k->outputs[slot - g->k->n_inputs]);
  return arena_printf(g->arena, "%s%s *", is_written(g, slot) ? "" : "const ", kernel_type(t->dtype));
}

static const char *free_parameter(const Many *g, const char *base, int member) {
  const char *name = arena_printf(g->arena, "%s_%d", base, member);
  for (bool taken = true; taken;) {
    taken = false;
    for (int i = 0; i < g->n_list && !taken; i++) taken = !strcmp(g->list[i].name, name);
    for (int i = 0; i < g->slots.n_slots && !taken; i++) taken = !strcmp(g->names[i], name);
    if (taken) name = arena_printf(g->arena, "%s_", name);
  }
  return name;
}

static void make_parameters(Many *g) {
  int n = g->slots.n_slots;
  g->list = arena_alloc_array(g->arena, (size_t)(g->group->n * n), sizeof *g->list);
  g->parameters = arena_alloc_array(g->arena, (size_t)(g->group->n * n), sizeof *g->parameters);
  for (int m = 0; m < g->group->n; m++)
    for (int i = 0; i < n; i++) {
      if (g->slots.alias[i] != i || (m && g->slots.shared[i])) continue;
      const char *name = g->slots.shared[i] ? g->names[i] : free_parameter(g, g->names[i], m);
      g->parameters[m * n + i] = name;
      g->list[g->n_list++] = (CudaParameter){slot_type(g, i), name, g->slots.shared[i] && !is_written(g, i)};
    }
}

/* Full tensors as vectors of the largest size: in these kernels an element depends on its own number alone. */
static PlanKernel flat_kernel(const Many *g, int64_t largest) {
  PlanKernel flat = *g->k;
  int64_t size = size_of(g->k);
  PlanType *inputs = arena_alloc_array(g->arena, (size_t)flat.n_inputs, sizeof *inputs);
  PlanNode *nodes = arena_alloc_array(g->arena, (size_t)flat.n_nodes, sizeof *nodes);
  static const int64_t axis[] = {0};
  memcpy(nodes, flat.nodes, sizeof *nodes * (size_t)flat.n_nodes);
  for (int i = 0; i < flat.n_inputs; i++) {
    inputs[i] = flat.inputs[i];
    if (plan_elements(&inputs[i]) == size) inputs[i] = (PlanType){inputs[i].dtype, 1, {largest}};
  }
  for (int i = 0; i < flat.n_nodes; i++) {
    if (plan_elements(&nodes[i].type) == size) nodes[i].type = (PlanType){nodes[i].type.dtype, 1, {largest}};
    if (flat.n_inputs + i == flat.outputs[0] && is_sum(g->k)) nodes[i].attrs.axes = axis, nodes[i].attrs.n_axes = 1, nodes[i].type.rank = 0;
  }
  flat.inputs = inputs, flat.nodes = nodes;
  return flat;
}

/* Which tensor `unit` (of blocks, or half warps) works on: "if (unit < 12) x = x_0, first = 0, n = 3000;" */
static void print_choice(const Many *g, Str *out, const char *unit, int64_t per_unit, bool sizes, const bool *slots, const char *type) {
  int64_t first = 0;
  for (int i = 0; i < g->slots.n_slots; i++)
    if (slots[i] && !g->slots.shared[i] && g->slots.alias[i] == i) str_printf(out, "  %s%s;\n", slot_type(g, i), g->names[i]);
  str_printf(out, "  %s first, n;\n", type);
  for (int m = 0; m < g->group->n; m++) {
    int64_t units = per_unit ? (g->sizes[m] + per_unit - 1) / per_unit : 1, chunks = (g->sizes[m] + CHUNK - 1) / CHUNK;
    bool last = m == g->group->n - 1;
    str_printf(out, "  %s", m ? "else " : "");
    if (!last && per_unit) str_printf(out, "if (%s < %lld) ", unit, (long long)(first + units));
    else if (!last) str_printf(out, "if (%s == %d) ", unit, m);
    for (int i = 0; i < g->slots.n_slots; i++)
      if (slots[i] && !g->slots.shared[i] && g->slots.alias[i] == i) str_printf(out, "%s = %s, ", g->names[i], g->parameters[m * g->slots.n_slots + i]);
    str_printf(out, "first = %lld, n = %lld;\n", (long long)first, (long long)(sizes ? g->sizes[m] : chunks));
    first += per_unit ? units : chunks;
  }
}

static int64_t count_units(const Many *g, int64_t per_unit) {
  int64_t units = 0;
  for (int m = 0; m < g->group->n; m++) units += (g->sizes[m] + per_unit - 1) / per_unit;
  return units;
}

static Emit *start_emit(Many *g, const PlanKernel *flat) {
  Arena *arena = g->arena;
  size_t n_values = (size_t)(flat->n_inputs + flat->n_nodes);
  Emit *e = arena_alloc(arena, sizeof *e);
  Device *device = arena_alloc(arena, sizeof *device);
  *device = (Device){.stage = arena_alloc_array(arena, n_values, sizeof(int)), .chunked = arena_alloc_array(arena, n_values, sizeof(bool)),
                     .partial = arena_alloc_array(arena, n_values, sizeof(int64_t)), .pack_atom = -1};
  *e = (Emit){.arena = arena, .form = &device_form, .own = device, .k = flat, .names = g->names, .final = true};
  e->buffered = arena_alloc_array(arena, n_values, sizeof *e->buffered);
  kernel_count_reductions(e);
  device_start_pass(e);
  VEC_PUSH(arena, &e->taken, "first");
  VEC_PUSH(arena, &e->taken, "n");
  for (int i = 0; i < g->n_list; i++) VEC_PUSH(arena, &e->taken, g->list[i].name);
  return e;
}

static void take_body(Many *g, Emit *e, Str *out, CudaKernel *kernel) {
  str_puts(out, str_text(&e->scope->text));
  str_free(&e->scope->text);
  kernel->body = arena_strndup(g->arena, out->text, out->length);
  str_free(out);
}

static bool *all_slots(const Many *g, bool inputs, bool outputs) {
  bool *slots = arena_alloc_array(g->arena, (size_t)g->slots.n_slots, sizeof *slots);
  for (int i = 0; i < g->slots.n_slots; i++) slots[i] = i < g->k->n_inputs ? inputs : outputs;
  return slots;
}

static void write_map(Many *g, CudaKernel *kernel, int64_t largest) {
  PlanKernel flat = flat_kernel(g, largest);
  bool packs = size_of(g->k) % PACK == 0;
  int64_t per_block = BLOCK * (packs ? PACK : 1);
  Emit *e = start_emit(g, &flat);
  Str out = {0};
  print_choice(g, &out, "blockIdx.x", per_block, true, all_slots(g, true, true), "int");
  str_printf(&out, "  const int i = (blockIdx.x - first) * %d + threadIdx.x;\n  if (i >= n%s) return;\n", BLOCK, packs ? " / 4" : "");
  int *outputs = arena_alloc_array(g->arena, (size_t)flat.n_outputs, sizeof *outputs);
  for (int o = 0; o < flat.n_outputs; o++) outputs[o] = o;
  int64_t points = packs ? largest / PACK : largest;
  Scope *s = kernel_open_scope(e, true);
  s->indent--;
  s->loop = e->n_loops++, s->extent = points;
  s->atom = index_new_loop(&e->space, "i", 0, points, s->depth);
  if (packs) device_store_packs(e, flat.n_outputs, outputs, index_loop(&e->space, s->atom));
  else device_store_outputs(e, flat.n_outputs, outputs, index_loop(&e->space, s->atom), NULL);
  kernel_close_scope(e, NULL, NULL, NULL);
  kernel->grid[0] = count_units(g, per_block);
  kernel->block = BLOCK;
  take_body(g, e, &out, kernel);
}

/* Partial sums of all chunks of all tensors, one behind the other. */
static void write_sums(Many *g, CudaKernel *kernel, int64_t largest) {
  PlanKernel flat = flat_kernel(g, largest);
  int v = flat.outputs[0];
  int64_t teams = count_units(g, CHUNK);
  if (teams > PP_CUDA_PARTIALS) bug("kernel %s: %lld partial sums", kernel->name, (long long)teams);
  Emit *e = start_emit(g, &flat);
  Str out = {0};
  str_printf(&out, "  const int lane = threadIdx.x %% 16;\n  const int row = blockIdx.x * %d + threadIdx.x / 16;\n", TEAMS);
  if (teams % TEAMS) str_printf(&out, "  if (row >= %lld) return;\n", (long long)teams);
  print_choice(g, &out, "row", CHUNK, true, all_slots(g, true, false), "int");
  str_printf(&out, "  const int chunk = row - first;\n  if (n > chunk * %d + %d) n = chunk * %d + %d;\n", CHUNK, CHUNK, CHUNK, CHUNK);
  Scope *s = kernel_open_scope(e, true);
  s->indent--;
  s->loop = e->n_loops++;
  Reduction r = {.value = v, .name = kernel_fresh_name(e, kernel_base_name(e, v))};
  r.lanes = kernel_fresh_name(e, arena_printf(g->arena, "%s_lane", r.name));
  Groups groups = {.n = 1, .extents = {largest}};
  Index kept[PP_MAX_RANK] = {{0}};
  device_start_reduction(e, &r);
  Scope *loop = kernel_open_loop(e, e->n_loops++, 0, largest, largest);
  loop->diverges = true;
  Index at = index_loop(&e->space, loop->atom);
  kernel_accumulate(e, 1, &r, kept, &groups, &at, NULL);
  const char *name = e->space.atoms.at[loop->atom].name;
  kernel_close_scope(e, NULL, arena_printf(g->arena, "for (int %s = chunk * %d + lane; %s < n; %s += 16) ", name, CHUNK, name, name), NULL);
  device_fold_reduction(e, &r);
  kernel_line(e, s, "if (lane == 0) partial[row] = %s;", r.name);
  kernel_close_scope(e, NULL, NULL, NULL);
  kernel->grid[0] = (teams + TEAMS - 1) / TEAMS;
  kernel->block = TEAMS * 16;
  take_body(g, e, &out, kernel);
}

/* The chunks of each tensor meet. */
static void write_folds(Many *g, CudaKernel *kernel) {
  int slot = g->k->n_inputs;
  const char *type = kernel_type(kernel_value_type(g->k, g->k->outputs[0])->dtype);
  Str out = {0};
  str_printf(&out, "  const int row = blockIdx.x * %d + threadIdx.x / 16;\n", TEAMS);
  if (g->group->n % TEAMS) str_printf(&out, "  if (row >= %d) return;\n", g->group->n);
  print_choice(g, &out, "row", 0, false, all_slots(g, false, true), "int");
  str_printf(&out, "  const %s sum = pp_half_partial_sum<%s>(partial + first, n);\n  if (threadIdx.x %% 16 == 0) %s[0] = sum;\n", type, type, g->names[slot]);
  kernel->grid[0] = (g->group->n + TEAMS - 1) / TEAMS;
  kernel->block = TEAMS * 16;
  kernel->body = arena_strndup(g->arena, out.text, out.length);
  str_free(&out);
}

/* Names inside: of the first member's kernel, apart from what is written here; an output's is its input's. */
static const char *const *slot_names(Arena *arena, const PlanKernel *k, const Slots *slots) {
  const char *const *given = device_parameter_names(arena, k, slots->control);
  const char **names = arena_alloc_array(arena, (size_t)slots->n_slots, sizeof *names);
  static const char *const words[] = {"first", "n", "sum"};
  for (int i = 0; i < slots->n_slots; i++) {
    names[i] = given[slots->alias[i]];
    for (int w = 0; w < 3; w++)
      if (!strcmp(names[i], words[w])) names[i] = arena_printf(arena, "%s__%d", words[w], slots->alias[i]);
  }
  return names;
}

CudaKernel cuda_group_kernel(Arena *arena, const Plan *plan, const PlanTask *task, const CudaGroup *group, const char *name) {
  const PlanStatement *first = &task->statements[group->statements[0]];
  Many g = {.arena = arena, .group = group, .k = &plan->kernels[first->kernel]};
  int64_t largest = 0;
  g.sizes = arena_alloc_array(arena, (size_t)group->n, sizeof *g.sizes);
  for (int m = 0; m < group->n; m++) {
    g.sizes[m] = size_of(&plan->kernels[task->statements[group->statements[m]].kernel]);
    if (g.sizes[m] > largest) largest = g.sizes[m];
  }
  g.slots = find_slots(arena, task, group->n, group->statements);
  g.names = slot_names(arena, g.k, &g.slots);
  make_parameters(&g);
  CudaKernel kernel = {.name = name, .include = "lanes.cuh", .n_parameters = g.n_list, .parameters = g.list, .guarded = task->kind == PP_UPDATE, .grid = {1, 1, 1}};
  kernel.comment = arena_printf(arena, "%s on %d tensors at once: %s", g.k->name, group->n, g.k->comment ? g.k->comment : "");
  if (!is_sum(g.k)) {
    write_map(&g, &kernel, largest);
    return kernel;
  }
  kernel.partial = true;
  CudaKernel *before = arena_alloc(arena, sizeof *before);
  *before = kernel;
  before->name = arena_printf(arena, "%s_sums", name);
  write_sums(&g, before, largest);
  write_folds(&g, &kernel);
  kernel.before = before;
  return kernel;
}
