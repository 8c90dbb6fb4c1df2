// Small readers of the syntax tree, and its dump.
//
// The dump is one node per line, indented by depth, without places, comments,
// parentheses or the way a number was written: equal dumps, equal trees.
#include "dsl/ast.h"

#include <string.h>

const char *ast_op_text(AstOp op) {
  static const char *const texts[] = {
      "..", "or", "and", "not", "==", "!=", "<", "<=",
      ">",  ">=", "+",   "-",   "*",  "/",  "@", "-",
  };
  _Static_assert(sizeof texts / sizeof *texts == AST_COUNT, "one per operator");
  return texts[op];
}

const char *ast_assign_text(AstAssignOp op) {
  static const char *const texts[] = {"=", "+=", "-=", "*=", "/="};
  return texts[op];
}

Loc ast_expr_start(const AstExpr *expr) {
  for (;;) {
    if (expr->parens) return expr->open;
    switch (expr->kind) {
      case EXPR_BINARY:
      case EXPR_RANGE:
        expr = expr->binary.left;
        break;
      case EXPR_COND:
        expr = expr->cond.test;
        break;
      case EXPR_CALL:
        expr = expr->call.callee;
        break;
      case EXPR_INDEX:
        expr = expr->index.base;
        break;
      case EXPR_MEMBER:
        expr = expr->member.base;
        break;
      default:
        return expr->loc;
    }
  }
}

const AstTrainEntry *ast_train_find(const AstTrain *train, const char *key) {
  for (int i = 0; i < train->entries.n; i++)
    if (strcmp(train->entries.at[i].key, key) == 0)
      return &train->entries.at[i];
  return NULL;
}

// --- dump ------------------------------------------------------------------

typedef struct {
  Str *out;
  int indent;
} Dump;

static void dump_expr(Dump *d, const AstExpr *expr);
static void dump_block(Dump *d, const char *label, const AstBlock *block);

__attribute__((format(printf, 2, 3))) static void dump_line(
    Dump *d, const char *format, ...) {
  va_list args;
  va_start(args, format);
  str_pad(d->out, ' ', d->indent);
  str_vprintf(d->out, format, args);
  str_putc(d->out, '\n');
  va_end(args);
}

static void dump_exprs(Dump *d, const char *label, AstExprs exprs) {
  dump_line(d, "%s %d", label, exprs.n);
  d->indent++;
  for (int i = 0; i < exprs.n; i++) dump_expr(d, exprs.at[i]);
  d->indent--;
}

static void dump_names(Dump *d, const char *label, AstNames names) {
  dump_line(d, "%s %d", label, names.n);
  d->indent++;
  for (int i = 0; i < names.n; i++) dump_line(d, "%s", names.at[i].name);
  d->indent--;
}

static void dump_args(Dump *d, AstArgs args) {
  for (int i = 0; i < args.n; i++) {
    dump_line(d, "arg %s", args.at[i].name ? args.at[i].name : "-");
    dump_expr(d, args.at[i].value);
  }
}

static void dump_shape(Dump *d, const AstShape *shape) {
  if (!shape) return;
  dump_exprs(d, shape->dtype.name ? shape->dtype.name : "shape", shape->dims);
}

static void dump_params(Dump *d, AstParams params) {
  for (int i = 0; i < params.n; i++) {
    const AstParam *param = &params.at[i];
    dump_line(d, "parameter %s", param->name);
    d->indent++;
    dump_shape(d, param->shape);
    if (param->default_value) dump_expr(d, param->default_value);
    d->indent--;
  }
}

static void dump_fn(Dump *d, const AstFn *fn) {
  dump_line(d, "fn %s", fn->name ? fn->name : "-");
  d->indent++;
  dump_params(d, fn->params);
  dump_block(d, "body", fn->body);
  if (fn->derivative) {
    dump_names(d, "derivative", fn->derivative->names);
    dump_block(d, "body", fn->derivative->body);
  }
  d->indent--;
}

static void dump_expr_children(Dump *d, const AstExpr *expr) {
  switch (expr->kind) {
    case EXPR_LIST:
      dump_exprs(d, "elements", expr->list.elements);
      break;
    case EXPR_UNARY:
      dump_expr(d, expr->unary.operand);
      break;
    case EXPR_BINARY:
    case EXPR_RANGE:
      dump_expr(d, expr->binary.left);
      dump_expr(d, expr->binary.right);
      break;
    case EXPR_COND:
      dump_expr(d, expr->cond.test);
      dump_expr(d, expr->cond.then);
      dump_expr(d, expr->cond.otherwise);
      break;
    case EXPR_CALL:
      dump_expr(d, expr->call.callee);
      dump_args(d, expr->call.args);
      break;
    case EXPR_INDEX:
      dump_expr(d, expr->index.base);
      dump_exprs(d, "subscripts", expr->index.subscripts);
      break;
    case EXPR_MEMBER:
      dump_expr(d, expr->member.base);
      break;
    case EXPR_FN:
      dump_fn(d, expr->fn);
      break;
    default:
      break;
  }
}

static void dump_expr(Dump *d, const AstExpr *expr) {
  switch (expr->kind) {
    case EXPR_INT:
      dump_line(d, "int %lld", (long long)expr->int_value);
      break;
    case EXPR_FLOAT:
      dump_line(d, "float %a", expr->float_value);
      break;
    case EXPR_BOOL:
      dump_line(d, "%s", expr->bool_value ? "true" : "false");
      break;
    case EXPR_STRING:
      dump_line(d, "string %s", expr->text);
      break;
    case EXPR_NAME:
      dump_line(d, "name %s", expr->name);
      break;
    case EXPR_UNARY:
      dump_line(d, "unary %s", ast_op_text(expr->unary.op));
      break;
    case EXPR_BINARY:
    case EXPR_RANGE:
      dump_line(d, "binary %s", ast_op_text(expr->binary.op));
      break;
    case EXPR_MEMBER:
      dump_line(d, "member %s", expr->member.name);
      break;
    default:
      dump_line(d, "expr %d", (int)expr->kind);
      break;
  }
  d->indent++;
  dump_expr_children(d, expr);
  d->indent--;
}

static void dump_stmt_children(Dump *d, const AstStmt *s) {
  switch (s->kind) {
    case STMT_LET:
      dump_names(d, "names", s->let.names);
      dump_expr(d, s->let.value);
      break;
    case STMT_ASSIGN:
      dump_line(d, "%s", ast_assign_text(s->assign.op));
      dump_expr(d, s->assign.target);
      dump_expr(d, s->assign.value);
      break;
    case STMT_EXPR:
      dump_expr(d, s->expr);
      break;
    case STMT_RETURN:
      dump_exprs(d, "values", s->values);
      break;
    case STMT_IF:
      dump_expr(d, s->if_.test);
      dump_block(d, "then", s->if_.then);
      dump_block(d, "else", s->if_.otherwise);
      break;
    case STMT_FOR:
      dump_line(d, "%s", s->for_.name.name);
      dump_expr(d, s->for_.over);
      dump_block(d, "body", s->for_.body);
      break;
    case STMT_WHILE:
      dump_expr(d, s->while_.test);
      dump_block(d, "body", s->while_.body);
      break;
    case STMT_REQUIRE:
      dump_expr(d, s->require.test);
      dump_expr(d, s->require.text);
      break;
    case STMT_FN:
      dump_fn(d, s->fn);
      break;
    case STMT_OUTPUT:
      dump_line(d, "%s %s", s->output.name.name, s->output.how.name);
      dump_expr(d, s->output.value);
      break;
    case STMT_PARAM:
      dump_line(d, "%s", s->param.name.name);
      dump_shape(d, s->param.shape);
      if (s->param.init) dump_expr(d, s->param.init);
      break;
    case STMT_MEMBER:
      dump_line(d, "%s", s->member.name.name);
      if (s->member.index) dump_expr(d, s->member.index);
      dump_expr(d, s->member.value);
      break;
    case STMT_STATE:
      dump_names(d, "names", s->state.names);
      dump_expr(d, s->state.init);
      break;
    case STMT_RANK:
      dump_line(d, "%s", s->rank.name.name);
      dump_block(d, "body", s->rank.body);
      break;
    case STMT_OVERLAP:
      dump_block(d, "body", s->overlap);
      break;
    default:
      break;
  }
}

static void dump_block(Dump *d, const char *label, const AstBlock *block) {
  if (!block) return;
  dump_line(d, "%s", label);
  d->indent++;
  for (int i = 0; i < block->stmts.n; i++) {
    dump_line(d, "statement %d", (int)block->stmts.at[i]->kind);
    d->indent++;
    dump_stmt_children(d, block->stmts.at[i]);
    d->indent--;
  }
  d->indent--;
}

static void dump_train(Dump *d, const AstTrain *train) {
  for (int i = 0; i < train->entries.n; i++) {
    dump_line(d, "%s", train->entries.at[i].key);
    d->indent++;
    dump_args(d, train->entries.at[i].args);
    d->indent--;
  }
}

static void dump_item(Dump *d, const AstItem *item) {
  dump_line(d, "item %d %s", (int)item->kind, item->name);
  d->indent++;
  switch (item->kind) {
    case ITEM_USE:
    case ITEM_COUNT:
      break;
    case ITEM_CONST:
      dump_expr(d, item->value);
      break;
    case ITEM_FN:
      dump_fn(d, item->fn);
      break;
    case ITEM_MODULE:
    case ITEM_SCHEDULE:
    case ITEM_OPTIMIZER:
      dump_params(d, item->decl.params);
      dump_block(d, "body", item->decl.body);
      break;
    case ITEM_TRAIN:
      dump_train(d, item->train);
      break;
  }
  d->indent--;
}

void dsl_dump(const AstFile *file, Str *out_text) {
  Dump d = {out_text, 0};
  for (int i = 0; i < file->items.n; i++) dump_item(&d, file->items.at[i]);
}
