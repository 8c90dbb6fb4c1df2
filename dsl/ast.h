// The syntax tree of the language, and the parser and printer around it.
//
// Nodes are plain tagged structs in an arena; nobody frees them, nobody
// changes them after dsl_resolve. Conventions:
//   * `kind` says which member of the union holds.
//   * `loc` is where an error about the node should point: at the operator of
//     `a @ b`, at the member's name in `net.logits`, at the first token of
//     everything else. A call points where its callee points.
//   * Lists are { at, n } pairs (VEC); n may be 0, then `at` may be NULL.
//   * Names are interned: within one dsl_load, equal names are one pointer
//     (compare them with ==; builtins made elsewhere need strcmp).
//   * The grammar is generous: every statement kind parses in every block.
//     dsl_resolve reports one that stands where it means nothing (a `param`
//     in a schedule), so a resolved tree holds them only where language.md
//     allows it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/base/map.h"
#include "compiler/base/str.h"
#include "compiler/base/vec.h"

typedef struct AstExpr AstExpr;
typedef struct AstStmt AstStmt;
typedef struct AstBlock AstBlock;
typedef struct AstFn AstFn;

// Trees are at most this deep (a longer `a + a + …` chain is an error), so
// that a walk may recurse.
#define AST_MAX_DEPTH 1000

// --- small parts -----------------------------------------------------------

typedef VEC(AstExpr *) AstExprs;

// A name where it is declared or said, e.g. in `let q, k = …`.
typedef struct {
  Loc loc;
  const char *name;
} AstName;

typedef VEC(AstName) AstNames;

// One argument of a call, of a `train` entry: `x` or `axis = -1`.
typedef struct {
  Loc loc;            // of the name when there is one, else of the value
  const char *name;   // NULL: by place
  AstExpr *value;
} AstArg;

typedef VEC(AstArg) AstArgs;

// A shape with an optional dtype: `[.., d]`, `i32[b, t]`. Each dim is an
// EXPR_ELLIPSIS (at most one, and the first), an EXPR_NAME (compared when an
// int of that name is in sight, else bound), or any int expression
// (compared). In a `param` every dim is evaluated and there is no ellipsis.
typedef struct {
  Loc loc;
  AstName dtype;  // dtype.name == NULL: none written
  AstExprs dims;
} AstShape;

// A parameter of a function, module, schedule or optimizer:
// `x`, `x: [b, t]`, `std = 0.02`.
typedef struct {
  Loc loc;
  const char *name;
  AstShape *shape;         // NULL: none
  AstExpr *default_value;  // NULL: required; may use earlier parameters
} AstParam;

typedef VEC(AstParam) AstParams;

// --- expressions -----------------------------------------------------------

typedef enum {
  EXPR_INT,       // int_value
  EXPR_FLOAT,     // float_value
  EXPR_BOOL,      // bool_value
  EXPR_STRING,    // string: escapes resolved, no NUL inside
  EXPR_INFINITY,
  EXPR_NAME,      // name; dtypes (f32 …) and builtins are names too
  EXPR_LIST,      // list; elements may be EXPR_ELLIPSIS
  EXPR_ELLIPSIS,  // `..` alone; only in a list, a subscript or a shape
  EXPR_UNARY,     // unary
  EXPR_BINARY,    // binary, never AST_RANGE
  EXPR_RANGE,     // binary, op == AST_RANGE: left..right, half open
  EXPR_COND,      // cond: test ? then : otherwise, lazy
  EXPR_CALL,      // call
  EXPR_INDEX,     // index: `l[i]`, `x[.., a..b]`
  EXPR_MEMBER,    // member: `net.logits`
  EXPR_FN,        // fn: a function literal; fn->name is NULL
  EXPR_COUNT
} AstExprKind;

typedef enum {
  AST_RANGE,
  AST_OR,   // short-circuit on bools, elementwise on bool tensors
  AST_AND,
  AST_NOT,  // unary
  AST_EQ,
  AST_NE,
  AST_LT,
  AST_LE,
  AST_GT,
  AST_GE,
  AST_ADD,
  AST_SUB,
  AST_MUL,
  AST_DIV,
  AST_MATMUL,
  AST_NEG,  // unary
  AST_COUNT
} AstOp;

// As written: "..", "or", "==", "@" …
const char *ast_op_text(AstOp op);

struct AstExpr {
  AstExprKind kind;
  Loc loc;
  int depth;    // 1 for a leaf
  bool parens;  // written in ( ); matters to dsl_print alone
  Loc open;     // of that `(`
  // For the evaluator (e.g. the resolved slot of a name); the parser leaves
  // them 0.
  int cache[2];
  union {
    int64_t int_value;
    double float_value;
    bool bool_value;
    const char *string;
    const char *name;
    struct {
      AstExprs elements;
    } list;
    struct {
      AstOp op;
      AstExpr *operand;
    } unary;
    struct {
      AstOp op;
      AstExpr *left, *right;
    } binary;
    struct {
      AstExpr *test, *then, *otherwise;
    } cond;
    struct {
      AstExpr *callee;
      AstArgs args;  // in the order written; by place ones come first
    } call;
    struct {
      AstExpr *base;
      AstExprs subscripts;  // at least one; EXPR_ELLIPSIS, EXPR_RANGE or other
    } index;
    struct {
      AstExpr *base;
      const char *name;
    } member;
    AstFn *fn;
  };
  const char *text;  // a number or string as written, for dsl_print; or NULL
};

// The first place of the expression, where `loc` may be an operator inside.
Loc ast_expr_start(const AstExpr *expr);

// --- functions -------------------------------------------------------------

// `derivative (y, dy) { … }`: names of the results, then of their adjoints.
// Its block sees the function's parameters as passed and the final values of
// the outermost lets of its body.
typedef struct {
  Loc loc;
  AstNames names;  // an even number: results, then adjoints
  AstBlock *body;
} AstDerivative;

struct AstFn {
  Loc loc;                    // of `fn`
  const char *name;           // NULL: nameless (a module's call, a literal)
  Loc name_loc;               // == loc when nameless
  AstParams params;
  AstBlock *body;
  AstDerivative *derivative;  // NULL: none
};

// --- statements ------------------------------------------------------------

struct AstBlock {
  Loc loc;  // of `{`
  Loc end;  // of `}`
  int depth;
  bool is_else_if;  // the one `if` of an `else if`, without braces
  VEC(AstStmt *) stmts;
};

typedef enum {
  STMT_LET,        // let: `let a, b = value;`
  STMT_ASSIGN,     // assign: `x = v;`, `l[i] += v;`
  STMT_EXPR,       // expr: a call
  STMT_RETURN,     // values; may be empty
  STMT_IF,         // if_
  STMT_FOR,        // for_
  STMT_WHILE,      // while_
  STMT_BREAK,
  STMT_CONTINUE,
  STMT_REQUIRE,    // require
  STMT_STAGE_END,
  STMT_FN,         // fn: named or, in a module or optimizer, nameless
  STMT_OUTPUT,     // output: `output accuracy = mean(x);`
  STMT_PARAM,      // param, in a module
  STMT_MEMBER,     // member, in a module: `h[layers]: block(d);`
  STMT_STATE,      // state, in an optimizer: `state m, v = zeros;`
  STMT_RANK,       // rank, in a schedule: `rank r { … }`
  STMT_OVERLAP,    // overlap: `overlap { a; b; }`
  STMT_COUNT
} AstStmtKind;

typedef enum { ASSIGN_SET, ASSIGN_ADD, ASSIGN_SUB, ASSIGN_MUL, ASSIGN_DIV }
    AstAssignOp;

// As written: "=", "+=" …
const char *ast_assign_text(AstAssignOp op);

struct AstStmt {
  AstStmtKind kind;
  Loc loc;
  Loc end;    // of its last token, `;` or `}`
  int depth;  // of the deepest expression or block inside, plus one
  union {
    struct {
      AstNames names;  // several: the value gives as many results
      AstExpr *value;
    } let;
    struct {
      AstAssignOp op;
      AstExpr *target;  // EXPR_NAME, or EXPR_INDEX
      AstExpr *value;
    } assign;
    AstExpr *expr;
    AstExprs values;
    struct {
      AstExpr *test;
      AstBlock *then;
      AstBlock *otherwise;  // NULL: no else. `else if` is a block of one `if`
    } if_;
    struct {
      AstName name;
      AstExpr *over;  // a range or list
      AstBlock *body;
    } for_;
    struct {
      AstExpr *test;
      AstBlock *body;
    } while_;
    struct {
      AstExpr *test;
      AstExpr *text;  // a string
    } require;
    AstFn *fn;
    struct {
      AstName name;
      AstName how;  // mean, sum, max, concat
      AstExpr *value;
    } output;
    struct {
      AstName name;
      AstShape *shape;
      AstExpr *init;  // normal(…), zeros …; NULL: none written
    } param;
    struct {
      AstName name;
      AstExpr *index;  // NULL: a single member
      AstExpr *value;
    } member;
    struct {
      AstNames names;
      AstExpr *init;
    } state;
    struct {
      AstName name;
      AstBlock *body;
    } rank;
    AstBlock *overlap;
  };
};

// --- files -----------------------------------------------------------------

typedef enum {
  ITEM_USE,        // use
  ITEM_CONST,      // value
  ITEM_FN,         // fn
  ITEM_MODULE,     // decl
  ITEM_SCHEDULE,   // decl
  ITEM_OPTIMIZER,  // decl
  ITEM_TRAIN,      // train
  ITEM_COUNT
} AstItemKind;

// One line of `train`: a key and its arguments, e.g. `model net = gpt2(…);`
// is { "model", { name "net", value gpt2(…) } } and `steps 400;` is
// { "steps", { by place 400 } }. dsl_resolve has checked that the keys exist,
// stand once (but `data`) and have the right form; see AstTrain.
typedef struct {
  Loc loc;  // of the key
  Loc end;  // of `;`
  const char *key;
  AstArgs args;
} AstTrainEntry;

typedef struct {
  Loc loc;  // of `{`
  Loc end;  // of `}`
  VEC(AstTrainEntry) entries;
} AstTrain;

// The entry with this key (the first), or NULL.
const AstTrainEntry *ast_train_find(const AstTrain *train, const char *key);

typedef struct AstFile AstFile;

typedef struct AstItem {
  AstItemKind kind;
  Loc loc;            // of its first word
  Loc end;            // of its last token
  const char *name;   // of what it declares or uses; "train" for ITEM_TRAIN
  Loc name_loc;
  AstFile *file;      // that it stands in
  union {
    AstFile *use;     // the loaded file; set by dsl_load
    AstExpr *value;
    AstFn *fn;
    struct {
      AstParams params;
      AstBlock *body;
    } decl;
    AstTrain *train;
  };
} AstItem;

// A comment, for dsl_print.
typedef struct {
  Loc loc;
  const char *text;  // with its // or /* */, without the newline
  bool own_line;     // nothing but blanks before it on its line
} AstComment;

struct AstFile {
  int file_index;    // in the Diag's sources; Loc.file of all its nodes
  const char *path;  // the source's name
  VEC(AstItem *) items;
  VEC(AstItem *) uses;  // those of them that are ITEM_USE
  VEC(AstComment) comments;
  Map names;         // name → AstItem *, all items but uses and train
};

// --- parsing and printing --------------------------------------------------

// Parses the source number `file_index`. Reports errors to the Diag and then
// returns NULL. `use`s are not followed: see dsl/load.h.
AstFile *dsl_parse(Arena *arena, Diag *diag, int file_index);

// The same with a table of interned names that several files share.
AstFile *dsl_parse_with_names(Arena *arena, Diag *diag, Map *names,
                              int file_index);

// A source that is one expression, such as what an option says.
AstExpr *dsl_parse_expr(Arena *arena, Diag *diag, Map *names, int source);

// `ppc fmt`: the file as canonical text, comments kept. Printing is
// idempotent, and parsing the text gives the same tree.
void dsl_print(const AstFile *file, Str *out_text);

// One expression or one statement's first line, e.g. for a dump or a note.
void dsl_print_expr(const AstExpr *expr, Str *out_text);

// The tree alone (no places, comments or parentheses), as one line per node:
// equal texts mean equal trees. For tests.
void dsl_dump(const AstFile *file, Str *out_text);
