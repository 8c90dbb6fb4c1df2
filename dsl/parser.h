// What scanner, grammar and tree builder share. Internal to dsl/.
//
// The grammar's actions call make_*; those fill in places and depths, and
// report what the grammar alone can't say (too deep, an argument by place
// after one by name). They never return NULL: after an error the tree is
// thrown away, but parsing goes on to find more of them.
#pragma once

#include "dsl/ast.h"

// A source beyond this is refused.
#define DSL_MAX_SOURCE_BYTES ((size_t)4 << 20)

typedef struct {
  Arena *arena;
  Diag *diag;
  Map *names;      // interned
  AstFile *file;
  Loc at;          // of the scanner: the next byte
  Loc token_end;   // just after the last token
  Loc before_end;  // just after the token before it
  const char *source_start;  // of the scanner's buffer
  const char *token_text;    // the last token, in that buffer
  int token_length;
  bool too_deep;   // said once for each file
  int broken_line; // the last with something the scanner can't read
  bool only_expr;  // the source is one expression
  bool started;
  AstExpr *expr;   // then that
} Parser;

// Scans and parses all of the text; false after a syntax error it couldn't
// recover from. Defined beside the scanner.
bool dsl_run_parser(Parser *p, const char *text, size_t length);

// One name, one pointer.
const char *parser_intern(Parser *p, const char *text, size_t length);

// --- nodes -----------------------------------------------------------------

AstExpr *make_int(Parser *p, Loc loc, const char *text);
AstExpr *make_float(Parser *p, Loc loc, const char *text);
// `text` is as written, with its quotes.
AstExpr *make_string(Parser *p, Loc loc, const char *text);
AstExpr *make_bool(Parser *p, Loc loc, bool value);
AstExpr *make_leaf(Parser *p, AstExprKind kind, Loc loc);
AstExpr *make_name(Parser *p, Loc loc, const char *name);
AstExpr *make_list(Parser *p, Loc loc, AstExprs elements);
AstExpr *make_unary(Parser *p, Loc loc, AstOp op, AstExpr *operand);
AstExpr *make_binary(Parser *p, Loc loc, AstOp op, AstExpr *left,
                     AstExpr *right);
AstExpr *make_cond(Parser *p, Loc loc, AstExpr *test, AstExpr *then,
                   AstExpr *otherwise);
AstExpr *make_call(Parser *p, AstExpr *callee, AstArgs args);
AstExpr *make_index(Parser *p, Loc bracket, AstExpr *base,
                    AstExprs subscripts);
AstExpr *make_member(Parser *p, Loc loc, AstExpr *base, const char *name);
// The expression itself, marked as written in ( ).
AstExpr *make_parens(Parser *p, Loc loc, AstExpr *expr);
AstExpr *make_fn_expr(Parser *p, AstFn *fn);

AstShape *make_shape(Parser *p, Loc loc, AstName dtype, AstExprs dims);
AstFn *make_fn(Parser *p, Loc loc, AstName name, AstParams params,
               AstBlock *body, AstDerivative *derivative);
AstDerivative *make_derivative(Parser *p, Loc loc, AstNames names,
                               AstBlock *body);

// `if_`, `let` … are filled in by the caller, then make_stmt_done computes
// the depth.
AstStmt *make_stmt(Parser *p, AstStmtKind kind, Loc loc, Loc end);
AstStmt *make_stmt_done(Parser *p, AstStmt *stmt);

// Splits `h[layers]`, the left side of a member, into name and index; anything
// else there is an error.
void make_member_target(Parser *p, AstStmt *stmt, const AstExpr *target);

AstBlock *make_block(Parser *p);
void block_add(Parser *p, AstBlock *block, AstStmt *stmt);

// A block that holds the one `if` of an `else if`.
AstBlock *make_else_if(Parser *p, AstStmt *inner);

AstItem *make_item(Parser *p, AstItemKind kind, Loc loc, Loc end,
                   AstName name);

// Appends; reports an argument by place after one by name, and a name twice.
void args_add(Parser *p, AstArgs *args, AstArg arg);
