// `ppc fmt`: tree and comments → canonical text.
//
// The text is a function of the tree, of the comments and of three facts of
// the source's layout that are kept: a blank line between two things (one at
// most), a block that was written on one line (while it fits), and short
// statements that share a line. Each comes out as it will be read back, so
// that printing is idempotent. Lines are filled up to 100 columns and broken
// after commas, else before operators, with 4 columns more.
//
// A comment before a statement stays before it, one after a statement on its
// line stays there; one inside a statement moves in front of it.
#include <limits.h>
#include <string.h>

#include "dsl/ast.h"

#define MAX_COLUMNS 100
#define INDENT 2
#define CONTINUATION 4

typedef struct {
  Str *out;
  const AstFile *file;  // NULL: no comments
  size_t line_start;    // in out->text
  int indent;
  int reserve;       // columns that must stay free at the end of the line
  int next_comment;  // the first that is not printed yet
  int last_line;     // in the source, of what was printed last; 0: of nothing
  // Measuring: one line if possible; blocks of many lines end it.
  bool flat;
  const AstBlock *open_block;  // the first block that doesn't go on one line
} Printer;

static void print_expr(Printer *p, const AstExpr *expr);
static void print_block(Printer *p, const AstBlock *block);
static void print_flat_stmt(Printer *p, const AstStmt *stmt);

// --- text ------------------------------------------------------------------

static void put(Printer *p, const char *text) { str_puts(p->out, text); }

static int column(const Printer *p) {
  return (int)(p->out->length - p->line_start);
}

static void start_line(Printer *p, int indent) {
  if (p->out->length > 0) str_putc(p->out, '\n');
  p->line_start = p->out->length;
  str_pad(p->out, ' ', indent);
}

static void blank_line(Printer *p) {
  str_putc(p->out, '\n');
  p->line_start = p->out->length;
}

static void start_continuation(Printer *p) {
  start_line(p, p->indent + CONTINUATION);
}

// A printer that writes on one line into `text`. It gives up (see too_long)
// when the text can't fit any line, so that measuring is cheap.
static Printer measuring(const Printer *p, Str *text) {
  Printer m = *p;
  m.out = text;
  m.line_start = 0;
  m.flat = true;
  m.open_block = NULL;
  return m;
}

static bool too_long(const Printer *p) {
  return p->flat && p->out->length > 2 * MAX_COLUMNS;
}

// True when `text`, put at the present column, ends before the last one.
static bool fits(const Printer *p, const Str *text, int more) {
  return column(p) + (int)text->length + p->reserve + more <= MAX_COLUMNS;
}

static bool expr_fits(const Printer *p, const AstExpr *expr, int more) {
  Str text = {0};
  Printer m = measuring(p, &text);
  print_expr(&m, expr);
  bool result = !m.open_block && fits(p, &text, more);
  str_free(&text);
  return result;
}

// --- comments --------------------------------------------------------------

static bool before(Loc a, Loc b) {
  return a.line < b.line || (a.line == b.line && a.col < b.col);
}

static const AstComment *pending(const Printer *p) {
  if (!p->file || p->flat || p->next_comment >= p->file->comments.n)
    return NULL;
  return &p->file->comments.at[p->next_comment];
}

static int comment_end_line(const AstComment *comment) {
  int line = comment->loc.line;
  for (const char *c = comment->text; *c; c++) line += *c == '\n';
  return line;
}

static void print_comment(Printer *p, const AstComment *comment) {
  put(p, comment->text);
  const char *newline = strrchr(comment->text, '\n');
  if (newline)
    p->line_start = p->out->length - strlen(newline + 1);
  p->last_line = comment_end_line(comment);
  p->next_comment++;
}

// One blank line where the source has some between the last thing and `line`.
static void keep_blank(Printer *p, int line) {
  if (p->last_line > 0 && line > p->last_line + 1) blank_line(p);
}

// The comments before `end`, each on a line of its own.
static void print_comments_before(Printer *p, Loc end) {
  const AstComment *c;
  while ((c = pending(p)) && before(c->loc, end)) {
    keep_blank(p, c->loc.line);
    start_line(p, p->indent);
    print_comment(p, c);
  }
}

// The next comment, when it is behind a token at `end`, on its line and
// before the next token.
static const AstComment *trailing(const Printer *p, Loc end, Loc next_token) {
  const AstComment *c = pending(p);
  bool is_behind = c && c->loc.line == end.line && !c->own_line &&
                   before(end, c->loc) && before(c->loc, next_token);
  return is_behind ? c : NULL;
}

static void print_comments_after(Printer *p, Loc end, Loc next_token) {
  const AstComment *c;
  while ((c = trailing(p, end, next_token))) {
    put(p, "  ");
    print_comment(p, c);
  }
}

// Only of comments that are not printed yet.
static bool has_comment(const Printer *p, const AstBlock *block) {
  if (!p->file) return false;
  int low = p->next_comment, high = p->file->comments.n;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (before(p->file->comments.at[middle].loc, block->loc))
      low = middle + 1;
    else
      high = middle;
  }
  return low < p->file->comments.n &&
         before(p->file->comments.at[low].loc, block->end);
}

// --- expressions -----------------------------------------------------------

// True when the expression, behind `more` columns, can start on this line: it
// fits, or it is a function literal that wouldn't fit the next line either
// and has its block opened.
static bool stays(const Printer *p, const AstExpr *expr, int more) {
  if (p->flat || expr_fits(p, expr, more)) return true;
  if (expr->kind != EXPR_FN || expr->parens) return false;
  Printer next_line = *p;
  next_line.line_start = p->out->length - (size_t)(p->indent + CONTINUATION);
  return !expr_fits(&next_line, expr, more);
}

// A space before the next thing, or a new line where that wouldn't fit.
static void put_break(Printer *p, bool next_stays) {
  if (next_stays)
    str_putc(p->out, ' ');
  else
    start_continuation(p);
}

// The end of a list element: what follows it must fit as well.
static int element_tail(bool is_last) { return is_last ? 0 : 1; }

static void print_name_and_value(Printer *p, const char *name,
                                 const AstExpr *value) {
  if (name) str_printf(p->out, "%s = ", name);
  print_expr(p, value);
}

static bool named_stays(const Printer *p, const char *name,
                        const AstExpr *value, int more) {
  int width = name ? (int)strlen(name) + 3 : 0;
  return stays(p, value, width + more);
}

static void print_args(Printer *p, AstArgs args) {
  for (int i = 0; i < args.n && !too_long(p); i++) {
    const AstArg *arg = &args.at[i];
    int tail = element_tail(i + 1 == args.n);
    if (i > 0) {
      str_putc(p->out, ',');
      put_break(p, named_stays(p, arg->name, arg->value, 1 + tail));
    }
    p->reserve += tail;
    print_name_and_value(p, arg->name, arg->value);
    p->reserve -= tail;
  }
}

static void print_exprs(Printer *p, AstExprs exprs) {
  for (int i = 0; i < exprs.n && !too_long(p); i++) {
    int tail = element_tail(i + 1 == exprs.n);
    if (i > 0) {
      str_putc(p->out, ',');
      put_break(p, stays(p, exprs.at[i], 1 + tail));
    }
    p->reserve += tail;
    print_expr(p, exprs.at[i]);
    p->reserve -= tail;
  }
}

// `open` … `close` around a list, which keeps room for `close`.
static void print_bracketed(Printer *p, char open, AstExprs exprs,
                            char close) {
  str_putc(p->out, open);
  p->reserve++;
  print_exprs(p, exprs);
  p->reserve--;
  str_putc(p->out, close);
}

static void print_call(Printer *p, const AstExpr *expr) {
  print_expr(p, expr->call.callee);
  str_putc(p->out, '(');
  p->reserve++;
  print_args(p, expr->call.args);
  p->reserve--;
  str_putc(p->out, ')');
}

static void print_binary(Printer *p, const AstExpr *expr) {
  const char *op = ast_op_text(expr->binary.op);
  print_expr(p, expr->binary.left);
  if (too_long(p)) return;
  int width = (int)strlen(op) + 2;
  put_break(p, stays(p, expr->binary.right, width));
  str_printf(p->out, "%s ", op);
  print_expr(p, expr->binary.right);
}

static void print_cond(Printer *p, const AstExpr *expr) {
  print_expr(p, expr->cond.test);
  if (too_long(p)) return;
  put_break(p, stays(p, expr->cond.then, 3));
  put(p, "? ");
  print_expr(p, expr->cond.then);
  if (too_long(p)) return;
  put_break(p, stays(p, expr->cond.otherwise, 3));
  put(p, ": ");
  print_expr(p, expr->cond.otherwise);
}

static void print_unary(Printer *p, const AstExpr *expr) {
  put(p, expr->unary.op == AST_NOT ? "not " : "-");
  print_expr(p, expr->unary.operand);
}

static void print_shape(Printer *p, const AstShape *shape) {
  if (shape->dtype.name) put(p, shape->dtype.name);
  print_bracketed(p, '[', shape->dims, ']');
}

static void print_param(Printer *p, const AstParam *param) {
  put(p, param->name);
  if (param->shape) {
    put(p, ": ");
    print_shape(p, param->shape);
  }
  if (param->default_value) {
    put(p, " = ");
    print_expr(p, param->default_value);
  }
}

static bool param_stays(const Printer *p, const AstParam *param, int more) {
  Str text = {0};
  Printer m = measuring(p, &text);
  AstParam head = *param;
  head.default_value = NULL;
  print_param(&m, &head);
  int width = (int)text.length;
  str_free(&text);
  if (!param->default_value)
    return p->flat || column(p) + width + p->reserve + more <= MAX_COLUMNS;
  return stays(p, param->default_value, width + 3 + more);
}

static void print_params(Printer *p, AstParams params) {
  str_putc(p->out, '(');
  p->reserve += 3;  // ") {"
  for (int i = 0; i < params.n && !too_long(p); i++) {
    int tail = element_tail(i + 1 == params.n);
    if (i > 0) {
      str_putc(p->out, ',');
      put_break(p, param_stays(p, &params.at[i], 1 + tail));
    }
    p->reserve += tail;
    print_param(p, &params.at[i]);
    p->reserve -= tail;
  }
  p->reserve -= 3;
  str_putc(p->out, ')');
}

static void print_fn_expr(Printer *p, const AstFn *fn) {
  put(p, "fn ");
  print_params(p, fn->params);
  str_putc(p->out, ' ');
  // Its lines are indented from the statement, not from the `fn`.
  print_block(p, fn->body);
}

static void print_operand(Printer *p, const AstExpr *expr) {
  switch (expr->kind) {
    case EXPR_INT:
    case EXPR_FLOAT:
    case EXPR_STRING:
      put(p, expr->text);
      break;
    case EXPR_BOOL:
      put(p, expr->bool_value ? "true" : "false");
      break;
    case EXPR_INFINITY:
      put(p, "infinity");
      break;
    case EXPR_NAME:
      put(p, expr->name);
      break;
    case EXPR_ELLIPSIS:
      put(p, "..");
      break;
    case EXPR_LIST:
      print_bracketed(p, '[', expr->list.elements, ']');
      break;
    case EXPR_UNARY:
      print_unary(p, expr);
      break;
    case EXPR_BINARY:
      print_binary(p, expr);
      break;
    case EXPR_RANGE:
      print_expr(p, expr->binary.left);
      put(p, "..");
      print_expr(p, expr->binary.right);
      break;
    case EXPR_COND:
      print_cond(p, expr);
      break;
    case EXPR_CALL:
      print_call(p, expr);
      break;
    case EXPR_INDEX:
      print_expr(p, expr->index.base);
      print_bracketed(p, '[', expr->index.subscripts, ']');
      break;
    case EXPR_MEMBER:
      print_expr(p, expr->member.base);
      str_printf(p->out, ".%s", expr->member.name);
      break;
    case EXPR_FN:
      print_fn_expr(p, expr->fn);
      break;
    case EXPR_COUNT:
      break;
  }
}

static void print_expr(Printer *p, const AstExpr *expr) {
  if (too_long(p)) return;
  if (expr->parens) str_putc(p->out, '(');
  p->reserve += expr->parens;
  print_operand(p, expr);
  p->reserve -= expr->parens;
  if (expr->parens) str_putc(p->out, ')');
}

// --- blocks ----------------------------------------------------------------

// True when the source has the block on one line, and no comment in it.
static bool is_one_line(const Printer *p, const AstBlock *block) {
  if (has_comment(p, block)) return false;
  return block->stmts.n == 0 || block->loc.line == block->end.line;
}

static void print_flat_block(Printer *p, const AstBlock *block) {
  if (!p->open_block && !is_one_line(p, block)) p->open_block = block;
  if (p->open_block) return;
  put(p, block->stmts.n ? "{" : "{}");
  for (int i = 0; i < block->stmts.n && !too_long(p); i++) {
    str_putc(p->out, ' ');
    print_flat_stmt(p, block->stmts.at[i]);
  }
  if (block->stmts.n) put(p, " }");
}

static bool block_fits(const Printer *p, const AstBlock *block) {
  Str text = {0};
  Printer m = measuring(p, &text);
  print_flat_block(&m, block);
  bool result = !m.open_block && fits(p, &text, 0);
  str_free(&text);
  return result;
}

static void print_stmts(Printer *p, const AstBlock *block);

static void print_open_block(Printer *p, const AstBlock *block) {
  if (block->stmts.n == 0 && !has_comment(p, block)) {
    put(p, "{}");
    p->last_line = block->end.line;
    return;
  }
  int reserve = p->reserve;
  p->reserve = 0;
  str_putc(p->out, '{');
  // Comments that stand before the `{` come first inside.
  print_comments_after(p, block->loc,
                       block->stmts.n ? block->stmts.at[0]->loc : block->end);
  p->last_line = 0;
  p->indent += INDENT;
  print_stmts(p, block);
  print_comments_before(p, block->end);
  p->indent -= INDENT;
  start_line(p, p->indent);
  str_putc(p->out, '}');
  p->last_line = block->end.line;
  p->reserve = reserve;
}

// A block in an expression.
static void print_block(Printer *p, const AstBlock *block) {
  if (p->flat || block_fits(p, block))
    print_flat_block(p, block);
  else
    print_open_block(p, block);
}

// --- statements ------------------------------------------------------------

static void print_names(Printer *p, AstNames names) {
  for (int i = 0; i < names.n; i++)
    str_printf(p->out, i ? ", %s" : "%s", names.at[i].name);
}

// Statements without blocks of their own, up to the `;`.
static void print_simple_stmt(Printer *p, const AstStmt *s) {
  p->reserve++;
  switch (s->kind) {
    case STMT_LET:
      put(p, "let ");
      print_names(p, s->let.names);
      put(p, " = ");
      print_expr(p, s->let.value);
      break;
    case STMT_ASSIGN:
      print_expr(p, s->assign.target);
      str_printf(p->out, " %s ", ast_assign_text(s->assign.op));
      print_expr(p, s->assign.value);
      break;
    case STMT_EXPR:
      print_expr(p, s->expr);
      break;
    case STMT_RETURN:
      put(p, s->values.n ? "return " : "return");
      print_exprs(p, s->values);
      break;
    case STMT_BREAK:
      put(p, "break");
      break;
    case STMT_CONTINUE:
      put(p, "continue");
      break;
    case STMT_REQUIRE:
      put(p, "require ");
      print_expr(p, s->require.test);
      put(p, ",");
      put_break(p, stays(p, s->require.text, 1));
      print_expr(p, s->require.text);
      break;
    case STMT_STAGE_END:
      put(p, "stage_end");
      break;
    case STMT_OUTPUT:
      str_printf(p->out, "output %s = %s(", s->output.name.name,
                 s->output.how.name);
      p->reserve++;
      print_expr(p, s->output.value);
      p->reserve--;
      put(p, ")");
      break;
    case STMT_PARAM:
      str_printf(p->out, "param %s: ", s->param.name.name);
      print_shape(p, s->param.shape);
      if (s->param.init) put(p, " = ");
      if (s->param.init) print_expr(p, s->param.init);
      break;
    case STMT_MEMBER:
      put(p, s->member.name.name);
      if (s->member.index) {
        put(p, "[");
        print_expr(p, s->member.index);
        put(p, "]");
      }
      put(p, ": ");
      print_expr(p, s->member.value);
      break;
    case STMT_STATE:
      put(p, "state ");
      print_names(p, s->state.names);
      put(p, " = ");
      print_expr(p, s->state.init);
      break;
    default:
      break;
  }
  p->reserve--;
  put(p, ";");
}

// What stands before the first block of a statement: its own `{` follows.
static void print_header(Printer *p, const AstStmt *s) {
  int reserve = p->reserve;
  if (s->kind != STMT_FN) p->reserve += 2;  // print_params does it itself
  switch (s->kind) {
    case STMT_IF:
      put(p, "if ");
      print_expr(p, s->if_.test);
      break;
    case STMT_FOR:
      str_printf(p->out, "for %s in ", s->for_.name.name);
      print_expr(p, s->for_.over);
      break;
    case STMT_WHILE:
      put(p, "while ");
      print_expr(p, s->while_.test);
      break;
    case STMT_FN:
      put(p, "fn ");
      if (s->fn->name) put(p, s->fn->name);
      print_params(p, s->fn->params);
      break;
    case STMT_RANK:
      str_printf(p->out, "rank %s", s->rank.name.name);
      break;
    case STMT_OVERLAP:
      put(p, "overlap");
      break;
    default:
      break;
  }
  p->reserve = reserve;
  put(p, " ");
}

// NULL for a statement without one.
static const AstBlock *first_block(const AstStmt *s) {
  switch (s->kind) {
    case STMT_IF:
      return s->if_.then;
    case STMT_FOR:
      return s->for_.body;
    case STMT_WHILE:
      return s->while_.body;
    case STMT_FN:
      return s->fn->body;
    case STMT_RANK:
      return s->rank.body;
    case STMT_OVERLAP:
      return s->overlap;
    default:
      return NULL;
  }
}

typedef void PrintBlock(Printer *p, const AstBlock *block);

static void print_derivative(Printer *p, const AstDerivative *derivative,
                             PrintBlock *print) {
  put(p, " derivative (");
  print_names(p, derivative->names);
  put(p, ") ");
  print(p, derivative->body);
}

// A statement with blocks; all of them are printed with `print`, so that a
// chain of `else` is open as a whole or on one line as a whole.
static void print_block_stmt(Printer *p, const AstStmt *s, PrintBlock *print) {
  print_header(p, s);
  print(p, first_block(s));
  if (s->kind == STMT_FN && s->fn->derivative)
    print_derivative(p, s->fn->derivative, print);
  if (s->kind != STMT_IF || !s->if_.otherwise) return;
  put(p, " else ");
  const AstBlock *otherwise = s->if_.otherwise;
  if (otherwise->is_else_if)
    print_block_stmt(p, otherwise->stmts.at[0], print);
  else
    print(p, otherwise);
}

static void print_flat_stmt(Printer *p, const AstStmt *s) {
  if (too_long(p)) return;
  if (first_block(s))
    print_block_stmt(p, s, print_flat_block);
  else
    print_simple_stmt(p, s);
}

// Measures a statement; tells also where a block in it has to be opened.
static bool stmt_fits(const Printer *p, const AstStmt *s,
                      const AstBlock **out_open_block) {
  Str text = {0};
  Printer m = measuring(p, &text);
  print_flat_stmt(&m, s);
  bool result = !m.open_block && fits(p, &text, 0);
  *out_open_block = m.open_block;
  str_free(&text);
  return result;
}

// Short statements may share a line, as they did in the source.
static bool shares_line(const Printer *p, const AstStmt *s, bool after_simple) {
  const AstComment *c = pending(p);
  if (!after_simple || first_block(s) || s->loc.line != p->last_line ||
      s->loc.line != s->end.line || (c && before(c->loc, s->end)))
    return false;
  const AstBlock *open_block;
  Printer m = *p;
  m.reserve++;
  return stmt_fits(&m, s, &open_block);
}

static void print_stmt(Printer *p, const AstStmt *s) {
  const AstBlock *open_block;
  bool one_line = stmt_fits(p, s, &open_block);
  if (one_line)
    print_flat_stmt(p, s);
  else if (first_block(s))
    print_block_stmt(p, s, print_open_block);
  else
    print_simple_stmt(p, s);
}

// Comments before the statement's own text, or inside it up to its first
// block, go in front of it.
static Loc hoist_end(const Printer *p, const AstStmt *s) {
  if (first_block(s)) return first_block(s)->loc;
  const AstBlock *open_block;
  stmt_fits(p, s, &open_block);
  return open_block ? open_block->loc : s->end;
}

static void print_stmts(Printer *p, const AstBlock *block) {
  bool after_simple = false;
  for (int i = 0; i < block->stmts.n; i++) {
    const AstStmt *s = block->stmts.at[i];
    if (shares_line(p, s, after_simple)) {
      str_putc(p->out, ' ');
      print_flat_stmt(p, s);
    } else {
      print_comments_before(p, hoist_end(p, s));
      keep_blank(p, s->loc.line);
      start_line(p, p->indent);
      print_stmt(p, s);
    }
    p->last_line = s->end.line;
    Loc next = i + 1 < block->stmts.n ? block->stmts.at[i + 1]->loc : block->end;
    after_simple = !first_block(s) && !trailing(p, s->end, next);
    print_comments_after(p, s->end, next);
  }
}

// --- files -----------------------------------------------------------------

static int longest_key(const AstTrain *train) {
  int longest = 0;
  for (int i = 0; i < train->entries.n; i++) {
    int length = (int)strlen(train->entries.at[i].key);
    if (length > longest && length <= 16) longest = length;
  }
  return longest;
}

static void print_entry(Printer *p, const AstTrainEntry *entry, int width) {
  str_printf(p->out, "%-*s ", width, entry->key);
  p->reserve++;
  print_args(p, entry->args);
  p->reserve--;
  while (p->out->length > 0 && p->out->text[p->out->length - 1] == ' ')
    str_truncate(p->out, p->out->length - 1);
  put(p, ";");
}

// Where entry i starts, or the `}`.
static Loc train_token(const AstTrain *train, int i) {
  return i < train->entries.n ? train->entries.at[i].loc : train->end;
}

static void print_train(Printer *p, const AstTrain *train) {
  put(p, "train {");
  print_comments_after(p, train->loc, train_token(train, 0));
  p->last_line = 0;
  p->indent += INDENT;
  int width = longest_key(train);
  for (int i = 0; i < train->entries.n; i++) {
    const AstTrainEntry *entry = &train->entries.at[i];
    print_comments_before(p, entry->end);
    keep_blank(p, entry->loc.line);
    start_line(p, p->indent);
    print_entry(p, entry, width);
    p->last_line = entry->end.line;
    print_comments_after(p, entry->end, train_token(train, i + 1));
  }
  print_comments_before(p, train->end);
  p->indent -= INDENT;
  start_line(p, p->indent);
  put(p, "}");
}

static void print_item_head(Printer *p, const AstItem *item) {
  static const char *const words[] = {"use",      "const",     "fn",   "module",
                                      "schedule", "optimizer", "train"};
  str_printf(p->out, "%s %s", words[item->kind], item->name);
}

static bool is_simple_item(const AstItem *item) {
  return item->kind == ITEM_USE || item->kind == ITEM_CONST;
}

static void print_simple_item(Printer *p, const AstItem *item) {
  print_item_head(p, item);
  if (item->kind == ITEM_CONST) {
    put(p, " = ");
    p->reserve++;
    print_expr(p, item->value);
    p->reserve--;
  }
  put(p, ";");
}

static AstParams item_params(const AstItem *item) {
  return item->kind == ITEM_FN ? item->fn->params : item->decl.params;
}

static const AstBlock *item_block(const AstItem *item) {
  switch (item->kind) {
    case ITEM_FN:
      return item->fn->body;
    case ITEM_MODULE:
    case ITEM_SCHEDULE:
    case ITEM_OPTIMIZER:
      return item->decl.body;
    default:
      return NULL;
  }
}

static void print_block_item(Printer *p, const AstItem *item,
                             PrintBlock *print) {
  print_item_head(p, item);
  print_params(p, item_params(item));
  put(p, " ");
  print(p, item_block(item));
  if (item->kind == ITEM_FN && item->fn->derivative)
    print_derivative(p, item->fn->derivative, print);
}

static bool item_fits(const Printer *p, const AstItem *item) {
  Str text = {0};
  Printer m = measuring(p, &text);
  if (item_block(item))
    print_block_item(&m, item, print_flat_block);
  else
    print_simple_item(&m, item);
  bool result = !m.open_block && fits(p, &text, 0);
  str_free(&text);
  return result;
}

static void print_item(Printer *p, const AstItem *item) {
  if (item->kind == ITEM_TRAIN)
    print_train(p, item->train);
  else if (is_simple_item(item))
    print_simple_item(p, item);
  else
    print_block_item(p, item,
                     item_fits(p, item) ? print_flat_block : print_open_block);
}

static Loc item_hoist_end(const AstItem *item) {
  if (item->kind == ITEM_TRAIN) return item->train->loc;
  return item_block(item) ? item_block(item)->loc : item->end;
}

static bool item_shares_line(const Printer *p, const AstItem *item,
                             bool after_simple) {
  const AstComment *c = pending(p);
  if (!after_simple || !is_simple_item(item) || item->loc.line != p->last_line ||
      item->loc.line != item->end.line || (c && before(c->loc, item->end)))
    return false;
  Printer m = *p;
  m.reserve++;
  return item_fits(&m, item);
}

void dsl_print(const AstFile *file, Str *out_text) {
  Str text = {0};
  Printer p = {.out = &text, .file = file};
  bool after_simple = false;
  const Loc end = {file->file_index, INT_MAX, 1};
  for (int i = 0; i < file->items.n; i++) {
    const AstItem *item = file->items.at[i];
    if (item_shares_line(&p, item, after_simple)) {
      str_putc(p.out, ' ');
    } else {
      print_comments_before(&p, item_hoist_end(item));
      keep_blank(&p, item->loc.line);
      start_line(&p, 0);
    }
    print_item(&p, item);
    p.last_line = item->end.line;
    Loc next = i + 1 < file->items.n ? file->items.at[i + 1]->loc : end;
    after_simple = is_simple_item(item) && !trailing(&p, item->end, next);
    print_comments_after(&p, item->end, next);
  }
  print_comments_before(&p, end);
  if (text.length > 0) str_putc(&text, '\n');
  str_append(out_text, str_text(&text), text.length);
  str_free(&text);
}

void dsl_print_expr(const AstExpr *expr, Str *out_text) {
  Str text = {0};
  Printer p = {.out = &text};
  Printer m = measuring(&p, &text);
  print_expr(&m, expr);
  str_append(out_text, str_text(&text), text.length);
  str_free(&text);
}
