/* The parts of the form for people that are tables: a row a parameter, a data source, an action of a
 * rank, a transfer. */
#include <stdlib.h>
#include <string.h>

#include "compiler/items.h"
#include "compiler/ir/internal.h"
#include "compiler/ir/pretty.h"

/* --- texts ---------------------------------------------------------------------------------------- */

const char *pretty_kind(int64_t kind) {
  return kind >= 0 && kind < PP_TASK_KIND_COUNT ? pp_task_kind_name((pp_task_kind)kind) : "?";
}

/* "h.0: x (gpt2.pp:12)" without the place, and fit to stand for a value. */
const char *pretty_value(const Pretty *p, int64_t id) {
  if (id < 0 || id >= p->n_value_names) return arena_printf(p->tmp, "value%lld", (long long)id);
  const char *text = p->value_names[id], *end = strstr(text, " (");
  const char *name = end ? arena_strndup(p->tmp, text, (size_t)(end - text)) : text;
  static const char gradient[] = "gradient of ", adjoint[] = "adjoint: ", output[] = "output ";
  if (str_starts_with(name, gradient)) return arena_printf(p->tmp, "gradient(%s)", name + strlen(gradient));
  if (str_starts_with(name, adjoint)) return arena_printf(p->tmp, "d%s", name + strlen(adjoint));
  if (str_starts_with(name, output)) return arena_printf(p->tmp, "outputs(%s)", name + strlen(output));
  return name;
}

const char *pretty_place(const Pretty *p, Loc loc) {
  if (loc.line <= 0) return "";
  const char *name = diag_source_name(ir_diag(p->ir), loc.file), *slash = strrchr(name, '/');
  return arena_printf(p->tmp, "%s:%d", slash ? slash + 1 : name, loc.line);
}

/* The shortest decimal that reads back as the same number of that precision. */
const char *pretty_number(const Pretty *p, double v, bool single) {
  char text[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    double back = strtod(text, NULL);
    if (single ? (float)back == (float)v : back == v) break;
  }
  return arena_strdup(p->tmp, text);
}

/* --- who makes and who uses a value ------------------------------------------------------------------- */

/* Tasks of one stage follow one another: "stage 0 bwd, bwd_input, stage 1 fwd". */
static void add_user(Pretty *p, int *last_stage, const char **slot, int stage, const char *kind) {
  const char *text = *slot && *last_stage == stage ? kind : arena_printf(p->tmp, "stage %d %s", stage, kind);
  *slot = *slot ? arena_printf(p->tmp, "%s, %s", *slot, text) : text;
  *last_stage = stage;
}

static void read_task(Pretty *p, int *last_stages, Op func, int stage) {
  int64_t n;
  const char *kind = pretty_kind(op_int(func, "pp.kind", -1));
  const int64_t *in = op_ints(p->tmp, func, "pp.in", &n);
  for (int64_t i = 0; i < n; i++)
    if (in[i] >= 0 && in[i] < p->n_value_names) add_user(p, &last_stages[in[i]], &p->users[in[i]], stage, kind);
  const int64_t *out = op_ints(p->tmp, func, "pp.out", &n);
  for (int64_t i = 0; i < n; i++)
    if (out[i] >= 0 && out[i] < p->n_value_names && !p->makers[out[i]])
      p->makers[out[i]] = arena_printf(p->tmp, "stage %d %s", stage, kind);
}

static void read_names(Pretty *p, Op top) {
  const char *text = op_string(p->tmp, top, "pp.value_names");
  VEC(const char *) names = {0};
  while (text && *text) {
    size_t n = strcspn(text, "\n");
    VEC_PUSH(p->tmp, &names, arena_strndup(p->tmp, text, n));
    text += n + (text[n] == '\n');
  }
  p->value_names = names.at;
  p->n_value_names = names.n;
}

static void read_parameters(Pretty *p, Op top) {
  VEC(const char *) names = {0};
  for (Op op = mlirBlockGetFirstOperation(module_body(top)); !op_is_null(op); op = op_next(op))
    if (op_id(op) == OP_PARAMETER) VEC_PUSH(p->tmp, &names, op_string(p->tmp, op, "sym"));
  p->parameters = names.at;
  p->n_parameters = names.n;
}

void pretty_read_values(Pretty *p, Op top) {
  read_names(p, top);
  read_parameters(p, top);
  p->stage_ranks = op_ints(p->tmp, top, "pp.stage_ranks", &p->n_stage_ranks);
  p->makers = arena_alloc_array(p->tmp, (size_t)p->n_value_names, sizeof *p->makers);
  p->users = arena_alloc_array(p->tmp, (size_t)p->n_value_names, sizeof *p->users);
  int *last_stages = arena_alloc_array(p->tmp, (size_t)p->n_value_names, sizeof *last_stages);
  for (Op op = mlirBlockGetFirstOperation(module_body(top)); !op_is_null(op); op = op_next(op)) {
    if (op_is_func(op) || op_id(op) != OP_NONE) continue;
    OpVec funcs = ir_funcs(p->tmp, op);
    for (int i = 0; i < funcs.n; i++) read_task(p, last_stages, funcs.at[i], op_stage(op));
  }
}

static bool on_rank(const Pretty *p, int64_t stage) {
  return p->options.rank < 0 || stage >= p->n_stage_ranks || p->stage_ranks[stage] == p->options.rank;
}

bool pretty_wants_stage(const Pretty *p, int64_t stage) {
  return (p->options.stage < 0 || p->options.stage == stage) && on_rank(p, stage);
}

/* --- aligned rows ----------------------------------------------------------------------------------- */

/* Characters, not bytes. */
static int width(const char *text) {
  int n = 0;
  for (; *text; text++) n += (*text & 0xC0) != 0x80;
  return n;
}

void pretty_print_rows(const Pretty *p, const PrettyRows *rows, const char *indent, int first, int rest) {
  int widths[PRETTY_COLUMNS] = {0};
  for (int i = 0; i < rows->n; i++)
    for (int c = 0; c < PRETTY_COLUMNS && !rows->at[i].whole; c++) {
      int n = rows->at[i].cells[c] ? width(rows->at[i].cells[c]) : 0;
      int limit = c ? rest : first;
      if (n > widths[c]) widths[c] = n < limit ? n : limit;
    }
  for (int i = 0; i < rows->n; i++) {
    int gap = 0; /* spaces owed before the next cell that is not empty */
    fputs(indent, p->out);
    for (int c = 0; c < PRETTY_COLUMNS; c++) {
      const char *cell = rows->at[i].cells[c] ? rows->at[i].cells[c] : "";
      int n = width(cell);
      if (n) fprintf(p->out, "%*s%s", gap, "", cell), gap = 0;
      if (widths[c]) gap += n < widths[c] ? widths[c] - n + 2 : 2;
    }
    fputc('\n', p->out);
  }
}

static const char *ints_text(const Pretty *p, Op op, const char *attr) {
  int64_t n;
  const int64_t *v = op_ints(p->tmp, op, attr, &n);
  Str s = {0};
  for (int64_t i = 0; i < n; i++) str_printf(&s, "%s%lld", i ? " " : "", (long long)v[i]);
  const char *text = arena_strdup(p->tmp, str_text(&s));
  str_free(&s);
  return text;
}

/* --- the whole, parameters, data ------------------------------------------------------------------------ */

static void say(Str *s, const char *format, Op top, const char *attr) {
  int64_t v = op_int(top, attr, -1);
  if (v >= 0) str_printf(s, format, s->length ? ", " : "", (long long)v);
}

void pretty_header(const Pretty *p, Op top) {
  Str s = {0};
  const char *file = op_string(p->tmp, top, "pp.file"), *dtype = op_string(p->tmp, top, "pp.dtype");
  const char *slash = file ? strrchr(file, '/') : NULL;
  if (slash) file = slash + 1;
  const char *schedule = op_string(p->tmp, top, "pp.schedule");
  if (dtype) str_puts(&s, dtype);
  say(&s, "%s%lld stages", top, "pp.stages");
  say(&s, "%s%lld ranks", top, "pp.ranks");
  say(&s, "%s%lld microbatches", top, "pp.microbatches");
  int64_t size = op_int(top, "pp.microbatch", -1);
  if (size > 0) str_printf(&s, " of %lld", (long long)size);
  if (schedule) str_printf(&s, "%s%s", s.length ? ", " : "", schedule);
  say(&s, "%s%lld steps", top, "pp.steps");
  if (file) fprintf(p->out, "%s: ", file);
  if (file || s.length) fprintf(p->out, "%s\n", str_text(&s));
  str_free(&s);
}

static bool has_stage(const Pretty *p, Op parameter) {
  int64_t n;
  const int64_t *stages = op_ints(p->tmp, parameter, "stages", &n);
  if (!stages) return true;
  for (int64_t i = 0; i < n; i++)
    if (pretty_wants_stage(p, stages[i])) return true;
  return pretty_wants_stage(p, op_int(parameter, "owner", 0));
}

static const char *init_text(const Pretty *p, Op op) {
  const char *init = op_string(p->tmp, op, "init");
  if (!strcmp(init, "zeros") || !strcmp(init, "ones")) return init;
  return arena_printf(p->tmp, "%s(%s, %s)", init, pretty_number(p, op_float(op, "a", 0), false), pretty_number(p, op_float(op, "b", 0), false));
}

static const char *place_comment(const Pretty *p, Loc loc) {
  const char *place = pretty_place(p, loc);
  return *place ? arena_printf(p->tmp, "# %s", place) : "";
}

static PrettyRow parameter_row(const Pretty *p, Op op) {
  PrettyRow row = {.cells = {op_string(p->tmp, op, "sym"), type_text(p->tmp, op_type_attr(op, "type")), init_text(p, op)}};
  int64_t owner = op_int(op, "owner", -1), n;
  op_ints(p->tmp, op, "stages", &n);
  if (owner >= 0) row.cells[3] = arena_printf(p->tmp, "stage %lld", (long long)owner);
  if (n > 1) row.cells[4] = arena_printf(p->tmp, "used in %s", ints_text(p, op, "stages"));
  row.cells[5] = place_comment(p, op_loc(p->ir, op));
  return row;
}

void pretty_parameters(const Pretty *p, Op top) {
  PrettyRows rows = {0};
  for (Op op = mlirBlockGetFirstOperation(module_body(top)); !op_is_null(op); op = op_next(op))
    if (op_id(op) == OP_PARAMETER && has_stage(p, op)) VEC_PUSH(p->tmp, &rows, parameter_row(p, op));
  if (rows.n) fputs("\nparameters\n", p->out);
  pretty_print_rows(p, &rows, "  ", 48, 48);
}

static PrettyRow source_row(const Pretty *p, Op op) {
  const char *path = op_string(p->tmp, op, "path"), *kind = op_string(p->tmp, op, "kind");
  PrettyRow row = {.cells = {op_string(p->tmp, op, "sym"), type_text(p->tmp, op_type_attr(op, "type"))}};
  row.cells[2] = *path ? arena_printf(p->tmp, "%s(\"%s\")", kind, path) : kind;
  row.cells[3] = op_string(p->tmp, op, "order");
  int64_t vocabulary = op_int(op, "vocabulary", 0);
  if (vocabulary > 0) row.cells[4] = arena_printf(p->tmp, "vocabulary %lld", (long long)vocabulary);
  row.cells[5] = place_comment(p, op_loc(p->ir, op));
  return row;
}

void pretty_sources(const Pretty *p, Op top) {
  PrettyRows rows = {0};
  for (Op op = mlirBlockGetFirstOperation(module_body(top)); !op_is_null(op); op = op_next(op))
    if (op_id(op) == OP_SOURCE) VEC_PUSH(p->tmp, &rows, source_row(p, op));
  if (rows.n) fputs("\ndata\n", p->out);
  pretty_print_rows(p, &rows, "  ", 48, 60);
}

/* --- ranks and transfers ------------------------------------------------------------------------------------ */

enum { TRANSFER_NUMBERS = 5, ACTION_NUMBERS = 3, OP_NUMBERS = 3 };

static const int64_t *transfer_table(const Pretty *p, Op top, int64_t *out_n) {
  OpVec all = {0};
  for (Op op = mlirBlockGetFirstOperation(module_body(top)); !op_is_null(op); op = op_next(op))
    if (op_id(op) == OP_TRANSFERS) VEC_PUSH(p->tmp, &all, op);
  *out_n = 0;
  if (!all.n) return NULL;
  const int64_t *table = op_ints(p->tmp, all.at[0], "table", out_n);
  *out_n /= TRANSFER_NUMBERS;
  return table;
}

/* "x:3": value x of microbatch 3; "control" when it is of the step. */
static const char *item_text(const Pretty *p, const int64_t *transfer) {
  const char *name = pretty_value(p, transfer[0]);
  return transfer[1] < 0 ? name : arena_printf(p->tmp, "%s:%lld", name, (long long)transfer[1]);
}

static void add_transfer(const Pretty *p, Str *s, int64_t what, const int64_t *t) {
  const char *item = item_text(p, t);
  if (s->length) str_puts(s, ", ");
  switch (what) {
    case PP_POST_RECEIVE: str_printf(s, "receive %s from %lld", item, (long long)t[2]); break;
    case PP_POST_SEND: str_printf(s, "send %s to %lld", item, (long long)t[3]); break;
    case PP_AWAIT_RECEIVE: str_printf(s, "await %s", item); break;
    case PP_AWAIT_SEND: str_printf(s, "await sent %s to %lld", item, (long long)t[3]); break;
    default: str_printf(s, "?%lld %s", (long long)what, item);
  }
}

typedef struct {
  const int64_t *ops, *table, *waits; /* waits: null before `events` */
  int64_t n_ops, n_table, next; /* ops are sorted by position: one walk */
} Cursor;

/* What `events` says of an operation, when that is not that its wait is of the compute stream. */
static void add_waits(const Pretty *p, Str *s, const Cursor *c, const int64_t *waits) {
  if (waits[0] == 0 && waits[1] >= 0 && waits[1] < c->n_table)
    str_printf(s, " (implied by %s)", item_text(p, c->table + waits[1] * TRANSFER_NUMBERS));
  else if (waits[0] == 0) str_puts(s, " (implied)");
  else if (waits[0] == 2) str_puts(s, " (second stream)");
  else if (waits[0] == 3) str_puts(s, " (both streams)");
}

static const char *transfers_at(const Pretty *p, Cursor *c, int64_t position) {
  Str s = {0};
  for (; c->next < c->n_ops && c->ops[c->next * OP_NUMBERS] <= position; c->next++) {
    const int64_t *op = c->ops + c->next * OP_NUMBERS;
    if (op[0] != position || op[2] < 0 || op[2] >= c->n_table) continue;
    add_transfer(p, &s, op[1], c->table + op[2] * TRANSFER_NUMBERS);
    if (c->waits) add_waits(p, &s, c, c->waits + 2 * c->next);
  }
  const char *text = arena_strdup(p->tmp, str_text(&s));
  str_free(&s);
  return text;
}

static PrettyRow action_row(const Pretty *p, int64_t i, const int64_t *a, const char *before, const char *after, Loc line) {
  PrettyRow row = {.cells = {arena_printf(p->tmp, "%lld", (long long)i), pretty_kind(a[0]),
                             arena_printf(p->tmp, "stage %lld", (long long)a[1])}};
  row.cells[3] = a[2] < 0 ? "" : arena_printf(p->tmp, "microbatch %lld", (long long)a[2]);
  row.cells[4] = *before ? arena_printf(p->tmp, "before: %s", before) : "";
  row.cells[5] = *after ? arena_printf(p->tmp, "after: %s", after) : "";
  row.cells[6] = place_comment(p, line);
  return row;
}

static const char *stages_on(const Pretty *p, int64_t rank) {
  Str s = {0};
  for (int64_t i = 0; i < p->n_stage_ranks; i++)
    if (p->stage_ranks[i] == rank) str_printf(&s, "%s%lld", s.length ? " " : "", (long long)i);
  const char *text = arena_strdup(p->tmp, str_text(&s));
  str_free(&s);
  return text;
}

static void print_rank(const Pretty *p, Op op, const int64_t *table, int64_t n_table) {
  int64_t n, n_lines, rank = op_int(op, "rank", 0);
  const int64_t *actions = op_ints(p->tmp, op, "actions", &n);
  const Loc *lines = op_lines(p->ir, p->tmp, op, "lines", &n_lines);
  Cursor c = {.table = table, .n_table = n_table};
  c.ops = op_ints(p->tmp, op, "ops", &c.n_ops);
  c.n_ops /= OP_NUMBERS;
  int64_t n_waits = 0, n_streams = 0;
  c.waits = op_ints(p->tmp, op, "waits", &n_waits);
  if (n_waits != 2 * c.n_ops) c.waits = NULL;
  const int64_t *streams = op_ints(p->tmp, op, "streams", &n_streams);
  n /= ACTION_NUMBERS;
  fprintf(p->out, "\nrank %lld, stages %s: %lld actions\n", (long long)rank, stages_on(p, rank), (long long)n);
  PrettyRows rows = {0};
  for (int64_t i = 0; i < n; i++) {
    const char *before = transfers_at(p, &c, 2 * i), *after = transfers_at(p, &c, 2 * i + 1);
    Loc line = i < n_lines ? lines[i] : (Loc){0};
    if (p->options.stage >= 0 && actions[3 * i + 1] != p->options.stage) continue;
    PrettyRow row = action_row(p, i, actions + 3 * i, before, after, line);
    if (i < n_streams && streams[i] & PP_ON_SECOND) row.cells[3] = arena_printf(p->tmp, "%s, second stream", row.cells[3]);
    VEC_PUSH(p->tmp, &rows, row);
  }
  pretty_print_rows(p, &rows, "  ", 8, 72);
}

/* --- memory ---------------------------------------------------------------------------------------------- */

static const char *parameter_name(const Pretty *p, int64_t index) {
  return index >= 0 && index < p->n_parameters ? p->parameters[index] : "?";
}

static const char *at_microbatch(const Pretty *p, const char *what, int64_t microbatch) {
  return microbatch < 0 ? what : arena_printf(p->tmp, "%s, microbatch %lld", what, (long long)microbatch);
}

static const char *state_name(const Pretty *p, int64_t number) {
  const char *list = op_string(p->tmp, ir_top(p->ir), "pp.states");
  for (; list && number > 0; number--) list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
  return list ? arena_strndup(p->tmp, list, strcspn(list, ",")) : "?";
}

static const char *item_name(const Pretty *p, const int64_t *item) {
  static const char *const plain[ITEM_KIND_COUNT] = {
      [ITEM_LOSSES] = "losses", [ITEM_COUNTS] = "counts", [ITEM_NORMS] = "norms",   [ITEM_CONTROL] = "control",
      [ITEM_STEP] = "step",     [ITEM_LOSS_SCALE] = "loss_scale", [ITEM_PROMPT] = "prompt", [ITEM_LOGITS] = "logits"};
  Arena *a = p->tmp;
  long long key1 = item[1], key2 = item[2];
  switch ((ItemKind)item[0]) {
    case ITEM_PARAMETER: return parameter_name(p, key1);
    case ITEM_GRADIENT: return arena_printf(a, "gradient(%s) of stage %lld", parameter_name(p, key1), key2);
    case ITEM_STATE: return arena_printf(a, "%s(%s)", state_name(p, key2), parameter_name(p, key1));
    case ITEM_OUTPUT: return arena_printf(a, "output %lld", key1);
    case ITEM_FRAME: return at_microbatch(p, arena_printf(a, "frame of stage %lld", key1), key2);
    case ITEM_WEIGHT_FRAME: return at_microbatch(p, arena_printf(a, "weight frame of stage %lld", key1), key2);
    case ITEM_VALUE: return at_microbatch(p, pretty_value(p, key1), key2);
    case ITEM_WORKSPACE: return arena_printf(a, "workspace of action %lld", key1);
    default: return item[0] >= 0 && item[0] < ITEM_KIND_COUNT && plain[item[0]] ? plain[item[0]] : "?";
  }
}

static void print_memory(const Pretty *p, Op rank) {
  int64_t n, n_bytes;
  const int64_t *items = op_ints(p->tmp, rank, "items", &n), *bytes = op_ints(p->tmp, rank, "bytes", &n_bytes);
  if (!items) return;
  fprintf(p->out, "\nmemory of rank %lld", (long long)op_int(rank, "rank", 0));
  if (n_bytes >= 2) fprintf(p->out, ": arena %lld bytes, window %lld bytes", (long long)bytes[0], (long long)bytes[1]);
  fputc('\n', p->out);
  PrettyRows rows = {0};
  for (int64_t i = 0; i + ITEM_NUMBERS <= n; i += ITEM_NUMBERS) {
    const char *space = items[i + 3] == PP_WINDOW ? "window" : "arena";
    VEC_PUSH(p->tmp, &rows, (PrettyRow){.cells = {arena_printf(p->tmp, "%s + %lld", space, (long long)items[i + 4]),
                                                  arena_printf(p->tmp, "%lld bytes", (long long)items[i + 5]), item_name(p, items + i)}});
  }
  pretty_print_rows(p, &rows, "  ", 32, 32);
}

void pretty_ranks(const Pretty *p, Op top) {
  int64_t n_table;
  const int64_t *table = transfer_table(p, top, &n_table);
  for (Op op = mlirBlockGetFirstOperation(module_body(top)); !op_is_null(op); op = op_next(op)) {
    if (op_id(op) != OP_RANK || (p->options.rank >= 0 && op_int(op, "rank", 0) != p->options.rank)) continue;
    if (p->options.stage >= 0 && p->options.stage < p->n_stage_ranks &&
        p->stage_ranks[p->options.stage] != op_int(op, "rank", 0))
      continue;
    print_rank(p, op, table, n_table);
    print_memory(p, op);
  }
}

static bool wants_transfer(const Pretty *p, const int64_t *t) {
  int64_t rank = p->options.rank;
  if (rank < 0 && p->options.stage >= 0 && p->options.stage < p->n_stage_ranks) rank = p->stage_ranks[p->options.stage];
  return rank < 0 || t[2] == rank || t[3] == rank;
}

void pretty_transfers(const Pretty *p, Op top) {
  int64_t n;
  const int64_t *table = transfer_table(p, top, &n);
  PrettyRows rows = {0};
  for (int64_t i = 0; i < n; i++) {
    const int64_t *t = table + i * TRANSFER_NUMBERS;
    if (!wants_transfer(p, t)) continue;
    VEC_PUSH(p->tmp, &rows, (PrettyRow){.cells = {arena_printf(p->tmp, "%lld", (long long)i), item_text(p, t),
             arena_printf(p->tmp, "rank %lld → rank %lld", (long long)t[2], (long long)t[3]),
             arena_printf(p->tmp, "made by action %lld", (long long)t[4])}});
  }
  if (rows.n) fputs("\ntransfers, in their total order\n", p->out);
  pretty_print_rows(p, &rows, "  ", 48, 48);
}
