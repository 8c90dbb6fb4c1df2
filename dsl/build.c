// The tree builder behind the grammar's actions, and dsl_parse.
//
// Every node knows how deep the tree below it is. A node over AST_MAX_DEPTH
// is reported once and replaced by a leaf, so that no later walk, which may
// recurse, can overflow the stack.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/parser.h"

const char *parser_intern(Parser *p, const char *text, size_t length) {
  char buffer[64];
  bool is_short = length < sizeof buffer;
  char *key = is_short ? buffer : arena_strndup(p->arena, text, length);
  if (is_short) {
    memcpy(key, text, length);
    key[length] = '\0';
  }
  const char *known = map_get(p->names, key);
  if (known) return known;
  char *name = is_short ? arena_strndup(p->arena, text, length) : key;
  map_put(p->arena, p->names, name, name);
  return name;
}

static int max2(int a, int b) { return a > b ? a : b; }

static void report_too_deep(Parser *p, Loc loc) {
  if (!p->too_deep) diag_error(p->diag, loc, "this is nested too deeply");
  p->too_deep = true;
}

// --- expressions -----------------------------------------------------------

AstExpr *make_leaf(Parser *p, AstExprKind kind, Loc loc) {
  AstExpr *expr = arena_alloc(p->arena, sizeof *expr);
  expr->kind = kind;
  expr->loc = loc;
  expr->depth = 1;
  return expr;
}

// `expr` with the depth of its children known: itself, or a leaf in its place.
static AstExpr *with_depth(Parser *p, AstExpr *expr, int children) {
  expr->depth = children + 1;
  if (expr->depth <= AST_MAX_DEPTH) return expr;
  report_too_deep(p, expr->loc);
  return make_leaf(p, EXPR_INFINITY, expr->loc);
}

static int depth_of(const AstExpr *expr) { return expr ? expr->depth : 0; }

static int exprs_depth(AstExprs exprs) {
  int depth = 0;
  for (int i = 0; i < exprs.n; i++) depth = max2(depth, exprs.at[i]->depth);
  return depth;
}

AstExpr *make_int(Parser *p, Loc loc, const char *text) {
  AstExpr *expr = make_leaf(p, EXPR_INT, loc);
  expr->text = text;
  errno = 0;
  expr->int_value = strtoll(text, NULL, 10);
  if (errno == ERANGE)
    diag_error(p->diag, loc, "the int %.40s is out of range (it has 64 bits)",
               text);
  return expr;
}

AstExpr *make_float(Parser *p, Loc loc, const char *text) {
  AstExpr *expr = make_leaf(p, EXPR_FLOAT, loc);
  expr->text = text;
  if (!str_to_double(text, &expr->float_value))
    diag_error(p->diag, loc, "the float %.40s is out of range", text);
  return expr;
}

static char unescape(Parser *p, Loc loc, char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case '"':
    case '\\':
      return c;
    default:
      diag_error(p->diag, loc,
                 "unknown escape '\\%c' (there are \\n \\t \\\" \\\\)", c);
      return c;
  }
}

AstExpr *make_string(Parser *p, Loc loc, const char *text) {
  AstExpr *expr = make_leaf(p, EXPR_STRING, loc);
  expr->text = text;
  size_t length = strlen(text);
  char *string = arena_alloc(p->arena, length);
  size_t n = 0;
  for (size_t i = 1; i + 1 < length; i++) {
    Loc here = {loc.file, loc.line, loc.col + (int)i};
    string[n++] = text[i] == '\\' ? unescape(p, here, text[++i]) : text[i];
  }
  expr->string = string;
  return expr;
}

AstExpr *make_bool(Parser *p, Loc loc, bool value) {
  AstExpr *expr = make_leaf(p, EXPR_BOOL, loc);
  expr->bool_value = value;
  return expr;
}

AstExpr *make_name(Parser *p, Loc loc, const char *name) {
  AstExpr *expr = make_leaf(p, EXPR_NAME, loc);
  expr->name = name;
  return expr;
}

AstExpr *make_list(Parser *p, Loc loc, AstExprs elements) {
  AstExpr *expr = make_leaf(p, EXPR_LIST, loc);
  expr->list.elements = elements;
  return with_depth(p, expr, exprs_depth(elements));
}

AstExpr *make_unary(Parser *p, Loc loc, AstOp op, AstExpr *operand) {
  AstExpr *expr = make_leaf(p, EXPR_UNARY, loc);
  expr->unary.op = op;
  expr->unary.operand = operand;
  return with_depth(p, expr, operand->depth);
}

static bool is_comparison(const AstExpr *expr) {
  return expr->kind == EXPR_BINARY && expr->binary.op >= AST_EQ &&
         expr->binary.op <= AST_GE && !expr->parens;
}

AstExpr *make_binary(Parser *p, Loc loc, AstOp op, AstExpr *left,
                     AstExpr *right) {
  AstExpr *expr = make_leaf(p, op == AST_RANGE ? EXPR_RANGE : EXPR_BINARY, loc);
  expr->binary.op = op;
  expr->binary.left = left;
  expr->binary.right = right;
  if (is_comparison(expr) && is_comparison(left)) {
    diag_error(p->diag, loc, "comparisons can't be chained");
    diag_note(p->diag, left->loc, "join two comparisons with 'and'");
  }
  return with_depth(p, expr, max2(left->depth, right->depth));
}

AstExpr *make_cond(Parser *p, Loc loc, AstExpr *test, AstExpr *then,
                   AstExpr *otherwise) {
  AstExpr *expr = make_leaf(p, EXPR_COND, loc);
  expr->cond.test = test;
  expr->cond.then = then;
  expr->cond.otherwise = otherwise;
  int depth = max2(then->depth, otherwise->depth);
  return with_depth(p, expr, max2(test->depth, depth));
}

AstExpr *make_call(Parser *p, AstExpr *callee, AstArgs args) {
  AstExpr *expr = make_leaf(p, EXPR_CALL, callee->loc);
  expr->call.callee = callee;
  expr->call.args = args;
  int depth = callee->depth;
  for (int i = 0; i < args.n; i++)
    depth = max2(depth, args.at[i].value->depth);
  return with_depth(p, expr, depth);
}

void args_add(Parser *p, AstArgs *args, AstArg arg) {
  for (int i = 0; i < args->n; i++) {
    const AstArg *before = &args->at[i];
    if (before->name && !arg.name) {
      diag_error(p->diag, arg.loc,
                 "an argument by place can't follow one by name");
      diag_note(p->diag, before->loc, "'%s' is given by name", before->name);
      break;
    }
    if (before->name && before->name == arg.name) {
      diag_error(p->diag, arg.loc, "the argument '%s' is given twice",
                 arg.name);
      diag_note(p->diag, before->loc, "it is given here first");
    }
  }
  VEC_PUSH(p->arena, args, arg);
}

AstExpr *make_index(Parser *p, Loc bracket, AstExpr *base,
                    AstExprs subscripts) {
  AstExpr *expr = make_leaf(p, EXPR_INDEX, bracket);
  expr->index.base = base;
  expr->index.subscripts = subscripts;
  if (subscripts.n == 0)
    diag_error(p->diag, bracket, "expected a subscript between '[' and ']'");
  return with_depth(p, expr, max2(base->depth, exprs_depth(subscripts)));
}

AstExpr *make_member(Parser *p, Loc loc, AstExpr *base, const char *name) {
  AstExpr *expr = make_leaf(p, EXPR_MEMBER, loc);
  expr->member.base = base;
  expr->member.name = name;
  if (!base->parens && (base->kind == EXPR_INT || base->kind == EXPR_FLOAT))
    diag_error(p->diag, loc, "a number has no members");
  return with_depth(p, expr, base->depth);
}

AstExpr *make_parens(Parser *p, Loc loc, AstExpr *expr) {
  (void)p;
  if (!expr->parens) expr->open = loc;
  expr->parens = true;
  return expr;
}

static int shape_depth(const AstShape *shape) {
  return shape ? exprs_depth(shape->dims) : 0;
}

static int fn_depth(const AstFn *fn) {
  int depth = fn->body->depth;
  for (int i = 0; i < fn->params.n; i++) {
    const AstParam *param = &fn->params.at[i];
    depth = max2(depth, shape_depth(param->shape));
    depth = max2(depth, depth_of(param->default_value));
  }
  return fn->derivative ? max2(depth, fn->derivative->body->depth) : depth;
}

AstExpr *make_fn_expr(Parser *p, AstFn *fn) {
  AstExpr *expr = make_leaf(p, EXPR_FN, fn->loc);
  expr->fn = fn;
  return with_depth(p, expr, fn_depth(fn));
}

AstShape *make_shape(Parser *p, Loc loc, AstName dtype, AstExprs dims) {
  AstShape *shape = arena_alloc(p->arena, sizeof *shape);
  shape->loc = loc;
  shape->dtype = dtype;
  shape->dims = dims;
  for (int i = 1; i < dims.n; i++)
    if (dims.at[i]->kind == EXPR_ELLIPSIS)
      diag_error(p->diag, dims.at[i]->loc,
                 "'..' can only stand first in a shape");
  return shape;
}

// --- functions -------------------------------------------------------------

AstFn *make_fn(Parser *p, Loc loc, AstName name, AstParams params,
               AstBlock *body, AstDerivative *derivative) {
  AstFn *fn = arena_alloc(p->arena, sizeof *fn);
  fn->loc = loc;
  fn->name = name.name;
  fn->name_loc = name.loc;
  fn->params = params;
  fn->body = body;
  fn->derivative = derivative;
  return fn;
}

AstDerivative *make_derivative(Parser *p, Loc loc, AstNames names,
                               AstBlock *body) {
  AstDerivative *derivative = arena_alloc(p->arena, sizeof *derivative);
  derivative->loc = loc;
  derivative->names = names;
  derivative->body = body;
  if (names.n % 2 != 0)
    diag_error(p->diag, loc,
               "a derivative names the results, then as many adjoints");
  return derivative;
}

// --- statements ------------------------------------------------------------

AstStmt *make_stmt(Parser *p, AstStmtKind kind, Loc loc, Loc end) {
  AstStmt *stmt = arena_alloc(p->arena, sizeof *stmt);
  stmt->kind = kind;
  stmt->loc = loc;
  stmt->end = end;
  return stmt;
}

static int block_depth(const AstBlock *block) {
  return block ? block->depth : 0;
}

static int stmt_children_depth(const AstStmt *s) {
  switch (s->kind) {
    case STMT_LET:
      return s->let.value->depth;
    case STMT_ASSIGN:
      return max2(s->assign.target->depth, s->assign.value->depth);
    case STMT_EXPR:
      return s->expr->depth;
    case STMT_RETURN:
      return exprs_depth(s->values);
    case STMT_IF:
      return max2(s->if_.test->depth, max2(block_depth(s->if_.then),
                                           block_depth(s->if_.otherwise)));
    case STMT_FOR:
      return max2(s->for_.over->depth, s->for_.body->depth);
    case STMT_WHILE:
      return max2(s->while_.test->depth, s->while_.body->depth);
    case STMT_REQUIRE:
      return max2(s->require.test->depth, s->require.text->depth);
    case STMT_FN:
      return fn_depth(s->fn);
    case STMT_OUTPUT:
      return s->output.value->depth;
    case STMT_PARAM:
      return max2(shape_depth(s->param.shape), depth_of(s->param.init));
    case STMT_MEMBER:
      return max2(depth_of(s->member.index), s->member.value->depth);
    case STMT_STATE:
      return s->state.init->depth;
    case STMT_RANK:
      return s->rank.body->depth;
    case STMT_OVERLAP:
      return s->overlap->depth;
    case STMT_BREAK:
    case STMT_CONTINUE:
    case STMT_STAGE_END:
    case STMT_COUNT:
      return 0;
  }
  return 0;
}

static bool is_assignable(const AstExpr *expr) {
  return !expr->parens &&
         (expr->kind == EXPR_NAME || expr->kind == EXPR_INDEX);
}

AstStmt *make_stmt_done(Parser *p, AstStmt *stmt) {
  stmt->depth = stmt_children_depth(stmt) + 1;
  if (stmt->kind == STMT_ASSIGN && !is_assignable(stmt->assign.target))
    diag_error(p->diag, stmt->assign.target->loc,
               "only a name or an element of a list can be assigned");
  if (stmt->kind == STMT_EXPR && stmt->expr->kind != EXPR_CALL)
    diag_error(p->diag, stmt->expr->loc, "this statement has no effect");
  return stmt;
}

void make_member_target(Parser *p, AstStmt *stmt, const AstExpr *target) {
  const AstExpr *base = target;
  if (target->kind == EXPR_INDEX && target->index.subscripts.n == 1) {
    base = target->index.base;
    stmt->member.index = target->index.subscripts.at[0];
  }
  if (base->kind != EXPR_NAME || target->parens || base->parens) {
    diag_error(p->diag, stmt->loc,
               "a member is declared as 'name: module(...);' or "
               "'name[n]: module(...);'");
    stmt->member.name = (AstName){stmt->loc, parser_intern(p, "_", 1)};
    return;
  }
  stmt->member.name = (AstName){base->loc, base->name};
}

AstBlock *make_block(Parser *p) {
  AstBlock *block = arena_alloc(p->arena, sizeof *block);
  block->depth = 1;
  return block;
}

void block_add(Parser *p, AstBlock *block, AstStmt *stmt) {
  if (stmt->depth + 1 > AST_MAX_DEPTH) {
    report_too_deep(p, stmt->loc);
    return;
  }
  VEC_PUSH(p->arena, &block->stmts, stmt);
  block->depth = max2(block->depth, stmt->depth + 1);
}

AstBlock *make_else_if(Parser *p, AstStmt *inner) {
  AstBlock *block = make_block(p);
  block->loc = inner->loc;
  block->end = inner->end;
  block->is_else_if = true;
  block_add(p, block, inner);
  return block;
}

// --- files -----------------------------------------------------------------

AstItem *make_item(Parser *p, AstItemKind kind, Loc loc, Loc end,
                   AstName name) {
  AstItem *item = arena_alloc(p->arena, sizeof *item);
  item->kind = kind;
  item->loc = loc;
  item->end = end;
  item->name = name.name;
  item->name_loc = name.loc;
  item->file = p->file;
  return item;
}

static void collect_names(Arena *arena, AstFile *file) {
  for (int i = 0; i < file->items.n; i++) {
    AstItem *item = file->items.at[i];
    if (item->kind == ITEM_USE) VEC_PUSH(arena, &file->uses, item);
    if (item->kind == ITEM_USE || item->kind == ITEM_TRAIN) continue;
    if (!map_find(&file->names, item->name))
      map_put(arena, &file->names, item->name, item);
  }
}

AstExpr *dsl_parse_expr(Arena *arena, Diag *diag, Map *names, int source) {
  int errors_before = diag_error_count(diag);
  Loc start = {source, 1, 1};
  AstFile *file = arena_alloc(arena, sizeof *file);
  Parser p = {.arena = arena, .diag = diag, .names = names, .file = file,
              .at = start, .token_end = start, .before_end = start,
              .only_expr = true};
  bool finished = dsl_run_parser(&p, diag_source_text(diag, source),
                                 diag_source_length(diag, source));
  if (!finished && diag_error_count(diag) == errors_before)
    diag_error(diag, p.at, "this is not one expression");
  return diag_error_count(diag) == errors_before ? p.expr : NULL;
}

AstFile *dsl_parse_with_names(Arena *arena, Diag *diag, Map *names,
                              int file_index) {
  int errors_before = diag_error_count(diag);
  Loc start = {file_index, 1, 1};
  size_t length = diag_source_length(diag, file_index);
  if (length > DSL_MAX_SOURCE_BYTES) {
    diag_error(diag, start, "this file has %zu bytes, more than %zu", length,
               DSL_MAX_SOURCE_BYTES);
    return NULL;
  }
  AstFile *file = arena_alloc(arena, sizeof *file);
  file->file_index = file_index;
  file->path = diag_source_name(diag, file_index);
  Parser p = {.arena = arena, .diag = diag, .names = names, .file = file,
              .at = start, .token_end = start, .before_end = start};
  bool finished =
      dsl_run_parser(&p, diag_source_text(diag, file_index), length);
  if (!finished && diag_error_count(diag) == errors_before)
    diag_error(diag, p.at, "this file can't be parsed");
  if (diag_error_count(diag) != errors_before) return NULL;
  collect_names(arena, file);
  return file;
}

AstFile *dsl_parse(Arena *arena, Diag *diag, int file_index) {
  Map names = {0};
  return dsl_parse_with_names(arena, diag, &names, file_index);
}
