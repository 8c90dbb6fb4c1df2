// Name checks that need no evaluation.
//
// In: the parsed files of a program, uses linked. Out: errors. Checks
//   * duplicates: at file level, in one block, in a parameter list;
//   * every name said: a scope around it, the file, the files it uses (two
//     that declare it: ambiguous), the builtins;
//   * what is assigned can be assigned;
//   * statements stand where language.md allows them;
//   * `train`: its keys, their form, the required ones.
// Scopes are lexical: a block, a parameter list, a loop variable each make
// one. In a module all members and functions are in sight everywhere, so
// function bodies there are visited after the rest of the module. Members of
// instances (`a.b`), argument names and types are the evaluator's.
#include <string.h>

#include "dsl/load.h"

typedef enum {
  NAME_LET,       // let, loop variable, parameter: can be assigned
  NAME_DIM,       // bound by a shape
  NAME_STATE,     // can be assigned
  NAME_FN,
  NAME_MEMBER,    // a module's member or param
  NAME_TRAIN,     // steps, ranks, … inside train
} NameKind;

typedef struct {
  NameKind kind;
  Loc loc;
} Name;

typedef struct Scope {
  struct Scope *parent;
  Map names;  // → Name *
} Scope;

// What the innermost declaration around a statement is.
typedef enum { IN_FN, IN_MODULE, IN_OPTIMIZER, IN_SCHEDULE, IN_RANK } Context;

typedef struct {
  Arena *arena;
  Diag *diag;
  const AstFile *file;
  Scope *scope;
  Context context;
  int loops;        // around the statement, in the same function
  int blocks;       // around it, in the same declaration
  Map unknown;      // reported already, in this file
  bool has_train;   // a second one was reported
} Resolver;

static void resolve_expr(Resolver *r, const AstExpr *expr);
static void resolve_block(Resolver *r, const AstBlock *block);
static void resolve_fn(Resolver *r, const AstFn *fn);

// --- builtins --------------------------------------------------------------

static const char *const builtin_names[] = {
    // numbers and lists
    "div", "mod", "min", "max", "abs", "exp", "log", "sqrt", "pow", "sin",
    "cos", "tanh", "erf", "rsqrt", "floor", "ceil", "len", "is_list",
    "append", "pop_front", "reverse", "sort", "copy", "ascending", "all", "print",
    // tensors
    "sum", "mean", "select", "concat", "pad", "transpose", "permute",
    "reshape", "iota", "random", "gather", "cast", "shape", "dtype",
    "attention", "zeros", "ones", "normal", "uniform",
    // dtypes and words
    "f64", "f32", "bf16", "f16", "i64", "i32", "bool", "real", "training",
    "tf32",
    // parameters of an optimizer
    "name", "rank",
    // actions
    "fwd", "bwd", "bwd_input", "bwd_weight",
    // train
    "bytes", "tokens16", "f32_file", "i32_file", "synthetic", "sequential",
    "shuffled", "stop", "skip", "dynamic",
    // axes
    "all",
};
enum { N_BUILTINS = sizeof builtin_names / sizeof *builtin_names };

bool dsl_is_builtin(const char *name) {
  for (int i = 0; i < N_BUILTINS; i++)
    if (strcmp(builtin_names[i], name) == 0) return true;
  return false;
}

// --- scopes ----------------------------------------------------------------

static Scope *open_scope(Resolver *r) {
  Scope *scope = arena_alloc(r->arena, sizeof *scope);
  scope->parent = r->scope;
  r->scope = scope;
  return scope;
}

static void close_scope(Resolver *r) { r->scope = r->scope->parent; }

static const Name *find_name(const Resolver *r, const char *name) {
  for (const Scope *s = r->scope; s; s = s->parent) {
    const Name *found = map_get(&s->names, name);
    if (found) return found;
  }
  return NULL;
}

static void declare(Resolver *r, NameKind kind, AstName name) {
  const Name *before = map_get(&r->scope->names, name.name);
  if (before) {
    diag_error(r->diag, name.loc, "'%s' is declared twice in this block",
               name.name);
    diag_note(r->diag, before->loc, "it is declared here first");
    return;
  }
  Name *added = arena_alloc(r->arena, sizeof *added);
  *added = (Name){kind, name.loc};
  map_put(r->arena, &r->scope->names, name.name, added);
}

static void declare_all(Resolver *r, NameKind kind, AstNames names) {
  for (int i = 0; i < names.n; i++) declare(r, kind, names.at[i]);
}

// --- names said ------------------------------------------------------------

static void guess_in_file(StrGuess *guess, const AstFile *file,
                          const AstItem **out_item) {
  for (int i = 0; i < file->names.n; i++)
    if (str_guess_try(guess, file->names.entries[i].key))
      *out_item = file->names.entries[i].value;
}

// The nearest name in sight: scopes, then files, then builtins. False when
// none is near.
static bool note_guess(Resolver *r, Loc loc, const char *name) {
  StrGuess guess = str_guess_start(name);
  Loc place = loc;
  for (const Scope *s = r->scope; s; s = s->parent)
    for (int i = 0; i < s->names.n; i++)
      if (str_guess_try(&guess, s->names.entries[i].key))
        place = ((const Name *)s->names.entries[i].value)->loc;
  const AstItem *item = NULL;
  guess_in_file(&guess, r->file, &item);
  for (int i = 0; i < r->file->uses.n; i++)
    if (r->file->uses.at[i]->use)
      guess_in_file(&guess, r->file->uses.at[i]->use, &item);
  if (item) place = item->name_loc;
  for (int i = 0; i < N_BUILTINS; i++)
    if (str_guess_try(&guess, builtin_names[i])) place = loc;
  if (guess.best)
    diag_note(r->diag, place, "did you mean '%s'?", guess.best);
  return guess.best != NULL;
}

// True when the embedded library declares `name` at the start of a line.
static bool library_declares(const char *text, const char *name) {
  static const char *const words[] = {"fn ", "module ", "schedule ",
                                      "optimizer ", "const "};
  size_t length = strlen(name);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
      const char *rest = line + strlen(words[i]);
      if (str_starts_with(line, words[i]) &&
          strncmp(rest, name, length) == 0 && strchr("( =", rest[length]))
        return true;
    }
  }
  return false;
}

// False when there is nothing to suggest.
static bool report_unknown(Resolver *r, Loc loc, const char *name) {
  if (map_get(&r->unknown, name)) return true;
  map_put(r->arena, &r->unknown, name, (void *)name);
  diag_error(r->diag, loc, "unknown name '%s'", name);
  if (diag_is_full(r->diag)) return true;
  for (int i = 0; i < dsl_library_count; i++) {
    if (!library_declares(dsl_library[i].text, name)) continue;
    diag_note(r->diag, loc, "the library has it: 'use %s;'",
              dsl_library[i].name);
    return true;
  }
  return note_guess(r, loc, name);
}

// The item that a file-level name means; reports one that two used files
// declare.
static const AstItem *find_item(Resolver *r, Loc loc, const char *name) {
  AstItem *item = dsl_find_item(r->file, name);
  if (!item || item->file == r->file) return item;
  for (int i = 0; i < r->file->uses.n; i++) {
    const AstFile *used = r->file->uses.at[i]->use;
    const AstItem *other = used ? map_get(&used->names, name) : NULL;
    if (!other || other->file == item->file) continue;
    diag_error(r->diag, loc, "'%s' is declared by two used files", name);
    diag_note(r->diag, item->name_loc, "here");
    diag_note(r->diag, other->name_loc, "and here");
    break;
  }
  return item;
}

static void resolve_name(Resolver *r, Loc loc, const char *name) {
  if (find_name(r, name) || find_item(r, loc, name) || dsl_is_builtin(name))
    return;
  report_unknown(r, loc, name);
}

// --- expressions -----------------------------------------------------------

static void resolve_exprs(Resolver *r, AstExprs exprs) {
  for (int i = 0; i < exprs.n; i++) resolve_expr(r, exprs.at[i]);
}

static void resolve_args(Resolver *r, AstArgs args) {
  for (int i = 0; i < args.n; i++) resolve_expr(r, args.at[i].value);
}

static void resolve_fn_expr(Resolver *r, const AstFn *fn) {
  Context context = r->context;
  r->context = IN_FN;
  resolve_fn(r, fn);
  r->context = context;
}

static void resolve_expr(Resolver *r, const AstExpr *expr) {
  switch (expr->kind) {
    case EXPR_NAME:
      resolve_name(r, expr->loc, expr->name);
      break;
    case EXPR_LIST:
      resolve_exprs(r, expr->list.elements);
      break;
    case EXPR_UNARY:
      resolve_expr(r, expr->unary.operand);
      break;
    case EXPR_BINARY:
    case EXPR_RANGE:
      resolve_expr(r, expr->binary.left);
      resolve_expr(r, expr->binary.right);
      break;
    case EXPR_COND:
      resolve_expr(r, expr->cond.test);
      resolve_expr(r, expr->cond.then);
      resolve_expr(r, expr->cond.otherwise);
      break;
    case EXPR_CALL:
      resolve_expr(r, expr->call.callee);
      resolve_args(r, expr->call.args);
      break;
    case EXPR_INDEX:
      resolve_expr(r, expr->index.base);
      resolve_exprs(r, expr->index.subscripts);
      break;
    case EXPR_MEMBER:
      resolve_expr(r, expr->member.base);
      break;
    case EXPR_FN:
      resolve_fn_expr(r, expr->fn);
      break;
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_BOOL:
    case EXPR_STRING:
    case EXPR_INFINITY:
    case EXPR_ELLIPSIS:
    case EXPR_COUNT:
      break;
  }
}

// --- functions -------------------------------------------------------------

// A name in a shape: an int in sight is compared, another name is bound. What
// can be no int is an error here; a tensor is found by the evaluator.
static void resolve_dim(Resolver *r, const AstExpr *dim) {
  if (dim->kind != EXPR_NAME) {
    resolve_expr(r, dim);
    return;
  }
  AstName said = {dim->loc, dim->name};
  const Name *name = find_name(r, said.name);
  const AstItem *item = name ? NULL : find_item(r, said.loc, said.name);
  bool clash = name ? name->kind == NAME_FN || name->kind == NAME_MEMBER
                    : item && item->kind != ITEM_CONST;
  if (clash) {
    diag_error(r->diag, said.loc, "'%s' in a shape must be a size",
               said.name);
    diag_note(r->diag, name ? name->loc : item->name_loc,
              "it is declared here");
  } else if (!name && !item) {
    declare(r, NAME_DIM, said);
  }
}

static void resolve_pattern(Resolver *r, const AstShape *shape) {
  if (!shape) return;
  if (shape->dtype.name) resolve_name(r, shape->dtype.loc, shape->dtype.name);
  for (int i = 0; i < shape->dims.n; i++) resolve_dim(r, shape->dims.at[i]);
}

// Defaults and shapes see the parameters before them.
static void resolve_params(Resolver *r, AstParams params) {
  for (int i = 0; i < params.n; i++) {
    const AstParam *param = &params.at[i];
    if (param->default_value) resolve_expr(r, param->default_value);
    resolve_pattern(r, param->shape);
    declare(r, NAME_LET, (AstName){param->loc, param->name});
  }
}

static void resolve_stmts(Resolver *r, const AstBlock *block);

// The derivative sees the outermost lets of the body, so it is resolved while
// the body's scope is still open.
static void resolve_fn(Resolver *r, const AstFn *fn) {
  int loops = r->loops, blocks = r->blocks;
  r->loops = 0;
  r->blocks = 0;
  open_scope(r);
  resolve_params(r, fn->params);
  open_scope(r);
  resolve_stmts(r, fn->body);
  if (fn->derivative) {
    open_scope(r);
    declare_all(r, NAME_LET, fn->derivative->names);
    resolve_block(r, fn->derivative->body);
    close_scope(r);
  }
  close_scope(r);
  close_scope(r);
  r->loops = loops;
  r->blocks = blocks;
}

// --- where statements may stand --------------------------------------------

static const char *stmt_word(AstStmtKind kind) {
  static const char *const words[] = {
      "let",      "an assignment", "a call",    "return",   "if",     "for",
      "while",    "break",         "continue",  "require",  "stage_end",
      "fn",       "output",        "param",     "a member", "state",  "rank",
      "overlap",
  };
  _Static_assert(sizeof words / sizeof *words == STMT_COUNT, "one per kind");
  return words[kind];
}

// NULL: it may stand here; else where it may.
static const char *where_allowed(const Resolver *r, const AstStmt *s) {
  bool outermost = r->blocks == 0;
  switch (s->kind) {
    case STMT_RETURN:
      return r->context == IN_FN ? NULL : "in a function";
    case STMT_BREAK:
    case STMT_CONTINUE:
      return r->loops > 0 ? NULL : "in a loop";
    case STMT_STAGE_END:
    case STMT_OUTPUT:
      return r->context == IN_FN ? NULL : "in a function";
    case STMT_PARAM:
    case STMT_MEMBER:
      return r->context == IN_MODULE ? NULL : "in a module, outside its "
                                              "functions";
    case STMT_STATE:
      return r->context == IN_OPTIMIZER && outermost
                 ? NULL
                 : "at the top of an optimizer";
    case STMT_RANK:
      return r->context == IN_SCHEDULE && outermost
                 ? NULL
                 : "at the top of a schedule";
    case STMT_OVERLAP:
      return r->context == IN_RANK || r->context == IN_FN
                 ? NULL
                 : "in a rank block or a function";
    case STMT_FN:
      if (s->fn->name) return NULL;
      return (r->context == IN_MODULE || r->context == IN_OPTIMIZER) &&
                     outermost
                 ? NULL
                 : "at the top of a module or an optimizer (without a name)";
    default:
      return NULL;
  }
}

static void check_place(Resolver *r, const AstStmt *s) {
  const char *where = where_allowed(r, s);
  if (!where) return;
  const char *word = stmt_word(s->kind);
  bool bare = s->kind == STMT_MEMBER;
  diag_error(r->diag, s->loc, bare ? "%s can only stand %s"
                                   : "'%s' can only stand %s",
             word, where);
}

// --- statements ------------------------------------------------------------

static void resolve_target(Resolver *r, const AstExpr *target) {
  if (target->kind != EXPR_NAME) {
    resolve_expr(r, target);
    return;
  }
  const Name *name = find_name(r, target->name);
  if (name && (name->kind == NAME_LET || name->kind == NAME_STATE)) return;
  const AstItem *item =
      name ? NULL : find_item(r, target->loc, target->name);
  if (!name && !item && !dsl_is_builtin(target->name)) {
    if (!report_unknown(r, target->loc, target->name))
      diag_note(r->diag, target->loc, "'let %s = …;' declares it",
                target->name);
    return;
  }
  diag_error(r->diag, target->loc,
             "'%s' can't be assigned: it is no variable made by 'let'",
             target->name);
  if (name || item)
    diag_note(r->diag, name ? name->loc : item->name_loc,
              "it is declared here");
}

static void resolve_loop_body(Resolver *r, const AstBlock *body) {
  r->loops++;
  resolve_block(r, body);
  r->loops--;
}

static void resolve_for(Resolver *r, const AstStmt *s) {
  resolve_expr(r, s->for_.over);
  open_scope(r);
  declare(r, NAME_LET, s->for_.name);
  resolve_loop_body(r, s->for_.body);
  close_scope(r);
}

static void resolve_rank(Resolver *r, const AstStmt *s) {
  Context context = r->context;
  r->context = IN_RANK;
  open_scope(r);
  declare(r, NAME_LET, s->rank.name);
  resolve_block(r, s->rank.body);
  close_scope(r);
  r->context = context;
}

// A function of a module or optimizer was declared, and is visited, by
// resolve_decl.
static void resolve_nested_fn(Resolver *r, const AstStmt *s) {
  bool hoisted =
      r->blocks == 0 && (r->context == IN_MODULE || r->context == IN_OPTIMIZER);
  if (hoisted || !s->fn->name) return;
  declare(r, NAME_FN, (AstName){s->fn->name_loc, s->fn->name});
  resolve_fn_expr(r, s->fn);
}

static void resolve_output(Resolver *r, const AstStmt *s) {
  static const char *const ways[] = {"mean", "sum", "max", "concat"};
  const char *how = s->output.how.name;
  bool known = false;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
    known = known || strcmp(ways[i], how) == 0;
  if (!known)
    diag_error(r->diag, s->output.how.loc,
               "an output is a 'mean', 'sum', 'max' or 'concat'");
  resolve_expr(r, s->output.value);
}

static void resolve_stmt(Resolver *r, const AstStmt *s) {
  check_place(r, s);
  switch (s->kind) {
    case STMT_LET:
      resolve_expr(r, s->let.value);
      declare_all(r, NAME_LET, s->let.names);
      break;
    case STMT_ASSIGN:
      resolve_expr(r, s->assign.value);
      resolve_target(r, s->assign.target);
      break;
    case STMT_EXPR:
      resolve_expr(r, s->expr);
      break;
    case STMT_RETURN:
      resolve_exprs(r, s->values);
      break;
    case STMT_IF:
      resolve_expr(r, s->if_.test);
      resolve_block(r, s->if_.then);
      if (s->if_.otherwise) resolve_block(r, s->if_.otherwise);
      break;
    case STMT_FOR:
      resolve_for(r, s);
      break;
    case STMT_WHILE:
      resolve_expr(r, s->while_.test);
      resolve_loop_body(r, s->while_.body);
      break;
    case STMT_REQUIRE:
      resolve_expr(r, s->require.test);
      resolve_expr(r, s->require.text);
      break;
    case STMT_FN:
      resolve_nested_fn(r, s);
      break;
    case STMT_OUTPUT:
      resolve_output(r, s);
      break;
    case STMT_PARAM:
      resolve_exprs(r, s->param.shape->dims);
      if (s->param.shape->dtype.name)
        resolve_name(r, s->param.shape->dtype.loc, s->param.shape->dtype.name);
      if (s->param.init) resolve_expr(r, s->param.init);
      break;
    case STMT_MEMBER:
      if (s->member.index) resolve_expr(r, s->member.index);
      resolve_expr(r, s->member.value);
      break;
    case STMT_STATE:
      resolve_expr(r, s->state.init);
      break;
    case STMT_RANK:
      resolve_rank(r, s);
      break;
    case STMT_OVERLAP:
      resolve_block(r, s->overlap);
      break;
    case STMT_BREAK:
    case STMT_CONTINUE:
    case STMT_STAGE_END:
    case STMT_COUNT:
      break;
  }
}

// The statements in the scope that is open.
// What stands behind a return, break or continue never runs.
static void warn_unreachable(Resolver *r, const AstStmt *end,
                             const AstStmt *next) {
  if (end->kind != STMT_RETURN && end->kind != STMT_BREAK &&
      end->kind != STMT_CONTINUE)
    return;
  if (where_allowed(r, end)) return; // an error already
  diag_warning(r->diag, next->loc, "this never runs");
  diag_note(r->diag, end->loc, "the '%s' before it ends the %s",
            stmt_word(end->kind),
            end->kind == STMT_RETURN  ? "function"
            : end->kind == STMT_BREAK ? "loop"
                                      : "turn of the loop");
}

static void resolve_stmts(Resolver *r, const AstBlock *block) {
  for (int i = 0; i < block->stmts.n; i++) {
    resolve_stmt(r, block->stmts.at[i]);
    if (i + 1 < block->stmts.n)
      warn_unreachable(r, block->stmts.at[i], block->stmts.at[i + 1]);
  }
}

static void resolve_block(Resolver *r, const AstBlock *block) {
  r->blocks++;
  open_scope(r);
  resolve_stmts(r, block);
  close_scope(r);
  r->blocks--;
}

// --- modules, optimizers, schedules ----------------------------------------

// Declares a module's member or param. Two in the two branches of an `if` may
// share a name, so only the same block is checked (by `block_names`).
static void declare_member(Resolver *r, const Scope *arguments,
                           Map *block_names, AstName name) {
  const Name *argument = map_get(&arguments->names, name.name);
  const Name *before = map_get(block_names, name.name);
  if (argument || before) {
    diag_error(r->diag, name.loc,
               argument ? "'%s' is already an argument of the module"
                        : "'%s' is declared twice in this block",
               name.name);
    diag_note(r->diag, (argument ? argument : before)->loc,
              "it is declared here first");
    return;
  }
  Name *added = arena_alloc(r->arena, sizeof *added);
  *added = (Name){NAME_MEMBER, name.loc};
  map_put(r->arena, block_names, name.name, added);
  if (!map_get(&r->scope->names, name.name))
    map_put(r->arena, &r->scope->names, name.name, added);
}

static void hoist_members(Resolver *r, const Scope *arguments,
                          const AstBlock *block) {
  Map block_names = {0};
  for (int i = 0; i < block->stmts.n; i++) {
    const AstStmt *s = block->stmts.at[i];
    if (s->kind == STMT_PARAM)
      declare_member(r, arguments, &block_names, s->param.name);
    if (s->kind == STMT_MEMBER)
      declare_member(r, arguments, &block_names, s->member.name);
    if (s->kind == STMT_IF) hoist_members(r, arguments, s->if_.then);
    if (s->kind == STMT_IF && s->if_.otherwise)
      hoist_members(r, arguments, s->if_.otherwise);
    if (s->kind == STMT_FOR) hoist_members(r, arguments, s->for_.body);
    if (s->kind == STMT_WHILE) hoist_members(r, arguments, s->while_.body);
  }
}

// Declares the functions of a module or optimizer and its states; checks that
// one function at most has no name.
static void hoist_functions(Resolver *r, const AstBlock *body) {
  const AstFn *nameless = NULL;
  for (int i = 0; i < body->stmts.n; i++) {
    const AstStmt *s = body->stmts.at[i];
    if (s->kind == STMT_STATE) declare_all(r, NAME_STATE, s->state.names);
    if (s->kind != STMT_FN) continue;
    if (s->fn->name) {
      declare(r, NAME_FN, (AstName){s->fn->name_loc, s->fn->name});
    } else if (nameless) {
      diag_error(r->diag, s->loc, "a second function without a name");
      diag_note(r->diag, nameless->loc, "the first is here");
    } else {
      nameless = s->fn;
    }
  }
}

static void resolve_functions(Resolver *r, const AstBlock *body) {
  for (int i = 0; i < body->stmts.n; i++)
    if (body->stmts.at[i]->kind == STMT_FN)
      resolve_fn_expr(r, body->stmts.at[i]->fn);
}

static void check_rank_blocks(Resolver *r, const AstItem *item) {
  const AstStmt *first = NULL;
  const AstBlock *body = item->decl.body;
  for (int i = 0; i < body->stmts.n; i++) {
    const AstStmt *s = body->stmts.at[i];
    if (s->kind != STMT_RANK) continue;
    if (first) {
      diag_error(r->diag, s->loc, "a schedule has one rank block");
      diag_note(r->diag, first->loc, "the first is here");
      return;
    }
    first = s;
  }
  if (!first)
    diag_error(r->diag, item->name_loc, "schedule '%s' has no rank block",
               item->name);
}

static void check_optimizer(Resolver *r, const AstItem *item) {
  const AstBlock *body = item->decl.body;
  for (int i = 0; i < body->stmts.n; i++)
    if (body->stmts.at[i]->kind == STMT_FN && !body->stmts.at[i]->fn->name)
      return;
  diag_error(r->diag, item->name_loc,
             "optimizer '%s' has no 'fn (p, g, step)'", item->name);
}

static void resolve_decl(Resolver *r, const AstItem *item, Context context) {
  r->context = context;
  Scope *arguments = open_scope(r);
  resolve_params(r, item->decl.params);
  open_scope(r);
  if (context == IN_MODULE) hoist_members(r, arguments, item->decl.body);
  if (context != IN_SCHEDULE) hoist_functions(r, item->decl.body);
  resolve_stmts(r, item->decl.body);
  if (context != IN_SCHEDULE) resolve_functions(r, item->decl.body);
  if (context == IN_SCHEDULE) check_rank_blocks(r, item);
  if (context == IN_OPTIMIZER) check_optimizer(r, item);
  close_scope(r);
  close_scope(r);
}

// --- train -----------------------------------------------------------------

typedef enum { ONE_VALUE, ONE_NAMED, NAMED_LIST } EntryForm;

static const struct {
  const char *key;
  EntryForm form;
  bool required;
} train_keys[] = {
    {"model", ONE_NAMED, true},      {"batch", NAMED_LIST, true},
    {"data", ONE_NAMED, false},      {"loss", ONE_VALUE, true},
    {"generate", ONE_VALUE, false},  {"ranks", ONE_VALUE, true},
    {"stages", ONE_VALUE, false},    {"schedule", ONE_VALUE, true},
    {"optimizer", ONE_VALUE, true},  {"clip", ONE_VALUE, false},
    {"steps", ONE_VALUE, true},      {"seed", ONE_VALUE, false},
    {"dtype", ONE_VALUE, false},     {"nonfinite", ONE_VALUE, false},
    {"precision", ONE_VALUE, false}, {"loss_scale", ONE_VALUE, false},
};
enum { N_TRAIN_KEYS = sizeof train_keys / sizeof *train_keys };

static int find_train_key(const char *key) {
  for (int i = 0; i < N_TRAIN_KEYS; i++)
    if (strcmp(train_keys[i].key, key) == 0) return i;
  return -1;
}

static void report_unknown_key(Resolver *r, const AstTrainEntry *entry) {
  diag_error(r->diag, entry->loc, "'train' has no setting '%s'", entry->key);
  StrGuess guess = str_guess_start(entry->key);
  for (int i = 0; i < N_TRAIN_KEYS; i++)
    str_guess_try(&guess, train_keys[i].key);
  if (guess.best)
    diag_note(r->diag, entry->loc, "did you mean '%s'?", guess.best);
}

static void check_entry_form(Resolver *r, const AstTrainEntry *entry,
                             EntryForm form) {
  const AstArgs *args = &entry->args;
  const char *key = entry->key;
  if (args->n == 0) {
    diag_error(r->diag, entry->loc, "'%s' has no value", key);
    return;
  }
  if (strcmp(key, "batch") == 0 && !args->at[0].name) {
    diag_error(r->diag, args->at[0].loc,
               "write 'batch microbatch = SAMPLES, microbatches = COUNT;'");
    return;
  }
  if (form != NAMED_LIST && args->n > 1)
    diag_error(r->diag, args->at[1].loc, "'%s' takes one value", key);
  for (int i = 0; i < args->n; i++) {
    bool named = args->at[i].name != NULL;
    if (form == ONE_VALUE && named)
      diag_error(r->diag, args->at[i].loc, "write '%s VALUE;', without a name",
                 key);
    if (form != ONE_VALUE && !named)
      diag_error(r->diag, args->at[i].loc, "write '%s NAME = VALUE;'", key);
  }
}

static void check_batch(Resolver *r, const AstTrainEntry *entry) {
  static const char *const names[] = {"microbatch", "microbatches"};
  bool seen[2] = {false, false};
  for (int i = 0; i < entry->args.n; i++) {
    const AstArg *arg = &entry->args.at[i];
    if (!arg->name) continue;
    bool known = false;
    for (int k = 0; k < 2; k++)
      if (strcmp(arg->name, names[k]) == 0) known = seen[k] = true;
    if (!known)
      diag_error(r->diag, arg->loc,
                 "'batch' has 'microbatch' and 'microbatches', no '%s'",
                 arg->name);
  }
  bool is_named = entry->args.n > 0 && entry->args.at[0].name;
  for (int k = 0; k < 2 && is_named; k++)
    if (!seen[k])
      diag_error(r->diag, entry->loc, "'batch' needs '%s = VALUE'",
                 names[k]);
}

static void check_nonfinite(Resolver *r, const AstTrainEntry *entry) {
  if (entry->args.n == 0) return;
  const AstExpr *value = entry->args.at[0].value;
  bool ok = value->kind == EXPR_NAME && (strcmp(value->name, "stop") == 0 ||
                                         strcmp(value->name, "skip") == 0);
  if (!ok)
    diag_error(r->diag, value->loc, "'nonfinite' is 'stop' or 'skip'");
}

// Keys: known, in their form, once (but `data`), the required ones there.
static void check_entries(Resolver *r, const AstTrain *train) {
  const AstTrainEntry *seen[N_TRAIN_KEYS] = {0};
  for (int i = 0; i < train->entries.n; i++) {
    const AstTrainEntry *entry = &train->entries.at[i];
    int key = find_train_key(entry->key);
    if (key < 0) {
      report_unknown_key(r, entry);
      continue;
    }
    if (seen[key] && strcmp(entry->key, "data") != 0) {
      diag_error(r->diag, entry->loc, "'%s' is set twice", entry->key);
      diag_note(r->diag, seen[key]->loc, "it is set here first");
      continue;
    }
    seen[key] = entry;
    check_entry_form(r, entry, train_keys[key].form);
    if (strcmp(entry->key, "batch") == 0) check_batch(r, entry);
    if (strcmp(entry->key, "nonfinite") == 0) check_nonfinite(r, entry);
  }
  for (int key = 0; key < N_TRAIN_KEYS; key++)
    if (train_keys[key].required && !seen[key])
      diag_error(r->diag, train->loc, "'train' needs '%s'",
                 train_keys[key].key);
}

// The others see the model and the data (loss, generate), hold a word
// (nonfinite), or were reported.
static bool sees_outer_names(const char *key) {
  return find_train_key(key) >= 0 && strcmp(key, "loss") != 0 &&
         strcmp(key, "generate") != 0 && strcmp(key, "nonfinite") != 0;
}

// `model net = net(…)` finds the module, so the model's name comes into sight
// after its value.
static void resolve_train(Resolver *r, const AstTrain *train) {
  static const char *const names[] = {"steps", "microbatch", "microbatches",
                                      "ranks"};
  r->context = IN_FN;
  check_entries(r, train);
  open_scope(r);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    declare(r, NAME_TRAIN, (AstName){train->loc, names[i]});
  open_scope(r);
  for (int i = 0; i < train->entries.n; i++)
    if (sees_outer_names(train->entries.at[i].key))
      resolve_args(r, train->entries.at[i].args);
  for (int i = 0; i < train->entries.n; i++) {
    const AstTrainEntry *entry = &train->entries.at[i];
    int key = find_train_key(entry->key);
    if (key < 0 || train_keys[key].form != ONE_NAMED) continue;
    for (int k = 0; k < entry->args.n; k++)
      if (entry->args.at[k].name)
        declare(r, NAME_LET,
                (AstName){entry->args.at[k].loc, entry->args.at[k].name});
  }
  const AstTrainEntry *loss = ast_train_find(train, "loss");
  const AstTrainEntry *generate = ast_train_find(train, "generate");
  if (loss) resolve_args(r, loss->args);
  if (generate) resolve_args(r, generate->args);
  close_scope(r);
  close_scope(r);
}

// --- files -----------------------------------------------------------------

// Map.names keeps the first of two items with one name.
static void check_file_duplicates(Resolver *r) {
  const AstItem *train = NULL;
  for (int i = 0; i < r->file->items.n; i++) {
    const AstItem *item = r->file->items.at[i];
    const AstItem *first = NULL;
    if (item->kind == ITEM_TRAIN) {
      first = train;
      if (!train) train = item;
    } else if (item->kind != ITEM_USE) {
      first = map_get(&r->file->names, item->name);
    }
    if (!first || first == item) continue;
    diag_error(r->diag, item->name_loc, "'%s' is declared twice in this file",
               item->name);
    diag_note(r->diag, first->name_loc, "it is declared here first");
  }
}

static void resolve_item(Resolver *r, const AstItem *item) {
  switch (item->kind) {
    case ITEM_CONST:
      resolve_expr(r, item->value);
      break;
    case ITEM_FN:
      r->context = IN_FN;
      resolve_fn(r, item->fn);
      break;
    case ITEM_MODULE:
      resolve_decl(r, item, IN_MODULE);
      break;
    case ITEM_SCHEDULE:
      resolve_decl(r, item, IN_SCHEDULE);
      break;
    case ITEM_OPTIMIZER:
      resolve_decl(r, item, IN_OPTIMIZER);
      break;
    case ITEM_TRAIN:
      if (!r->has_train) resolve_train(r, item->train);
      r->has_train = true;
      break;
    case ITEM_USE:
    case ITEM_COUNT:
      break;
  }
}

static void resolve_file(Arena *arena, Diag *diag, const AstFile *file) {
  Resolver r = {.arena = arena, .diag = diag, .file = file};
  check_file_duplicates(&r);
  for (int i = 0; i < file->items.n; i++) resolve_item(&r, file->items.at[i]);
}

bool dsl_resolve(Arena *arena, Diag *diag, const DslProgram *program) {
  int errors_before = diag_error_count(diag);
  diag_start_phase(diag);
  for (int i = 0; i < program->files.n; i++)
    resolve_file(arena, diag, program->files.at[i]);
  return diag_error_count(diag) == errors_before;
}
