// The grammar: LALR(1) without conflicts. Actions only build the tree; what a
// statement means where it stands is checked in dsl/resolve.c.
//
//   bison -o build/dsl/parse.c --defines=build/dsl/parse.h dsl/parse.y
//   flex  -o build/dsl/lex.c dsl/lex.l             (compile with -I. -Ibuild)
//
// Three choices keep it free of conflicts. A function literal is no operand,
// so a statement that starts with `fn` declares. Contextual words are tokens
// that also count as `word`s: one token of lookahead tells `rank r {` from
// `rank(p)`. A member `h[n]: block(d);` parses its left side as an expression.

%code requires {
#include "dsl/parser.h"
}

%code {
#include <string.h>

int dsl_scan(DSL_YYSTYPE *value, Loc *loc, void *scanner);

#define YYLLOC_DEFAULT(current, rhs, n) \
  ((current) = (n) ? YYRHSLOC(rhs, 1) : YYRHSLOC(rhs, 0))

static int dsl_yylex(DSL_YYSTYPE *value, Loc *loc, Parser *p, void *scanner);
static void dsl_yyerror(const Loc *loc, Parser *p, void *scanner, const char *message);
}

%define api.prefix {dsl_yy}
%define api.pure full
%define api.location.type {Loc}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%param {Parser *p} {void *scanner}
%initial-action { @$ = p->at; }

%union {
  const char *name;   // interned for words, as written for numbers and strings
  AstOp op;
  AstAssignOp assign;
  AstName said;
  AstNames names;
  AstExpr *expr;
  AstExprs exprs;
  AstArg arg;
  AstArgs args;
  AstShape *shape;
  AstParam param;
  AstParams params;
  AstFn *fn;
  AstDerivative *derivative;
  AstStmt *stmt;
  AstBlock *block;
  AstTrain *train;
  AstTrainEntry entry;
  AstItem *item;
}

%token YYEOF 0 "end of file"
%token EXPR_START
%token <name> NAME "a name" INT "an int" FLOAT "a float" STRING "a string"
%token <name> PARAM "param" STATE "state" OUTPUT "output" OVERLAP "overlap" RANK "rank"
%token <name> SCHEDULE "schedule" OPTIMIZER "optimizer" TRAIN "train"
%token USE "use" CONST "const" MODULE "module" LET "let" FN "fn" RETURN "return"
%token IF "if" ELSE "else" FOR "for" IN "in" WHILE "while" BREAK "break" CONTINUE "continue"
%token REQUIRE "require" DERIVATIVE "derivative" STAGE_END "stage_end"
%token NOT "not" AND "and" OR "or" TRUE "true" FALSE "false" INFINITY_WORD "infinity"
%token DOTDOT ".." EQ "==" NE "!=" LE "<=" GE ">="
%token ADD_SET "+=" SUB_SET "-=" MUL_SET "*=" DIV_SET "/="

%type <name> word
%type <said> said
%type <names> names
%type <expr> expr value cond or and not cmp add mul unary postfix primary
%type <expr> element init default
%type <exprs> exprs elements element_list
%type <op> cmp_op add_op mul_op
%type <assign> assign_op
%type <arg> arg
%type <args> args arg_list
%type <shape> shape shape_opt
%type <param> param
%type <params> params param_list
%type <derivative> derivative
%type <stmt> stmt if
%type <block> block stmts else
%type <train> entries
%type <entry> entry
%type <item> item

%%

file: items ;

items:
    %empty
  | items item              { VEC_PUSH(p->arena, &p->file->items, $2); }
  | items EXPR_START expr   { p->expr = $3; }
  | items error ';'         { yyerrok; }
  | items error block       { yyerrok; }
  | items error '}'         { yyerrok; }
  ;

item:
    USE said ';'            { $$ = make_item(p, ITEM_USE, @1, @3, $2); }
  | CONST said '=' expr ';' { $$ = make_item(p, ITEM_CONST, @1, @5, $2); $$->value = $4; }
  | FN said params block derivative {
      $$ = make_item(p, ITEM_FN, @1, $5 ? $5->body->end : $4->end, $2);
      $$->fn = make_fn(p, @1, $2, $3, $4, $5);
    }
  | MODULE said params block {
      $$ = make_item(p, ITEM_MODULE, @1, $4->end, $2);
      $$->decl.params = $3; $$->decl.body = $4;
    }
  | SCHEDULE said params block {
      $$ = make_item(p, ITEM_SCHEDULE, @1, $4->end, $2);
      $$->decl.params = $3; $$->decl.body = $4;
    }
  | OPTIMIZER said params block {
      $$ = make_item(p, ITEM_OPTIMIZER, @1, $4->end, $2);
      $$->decl.params = $3; $$->decl.body = $4;
    }
  | TRAIN '{' entries '}' {
      $$ = make_item(p, ITEM_TRAIN, @1, @4, (AstName){@1, $1});
      $$->train = $3; $3->loc = @2; $3->end = @4;
    }
  ;

entries:
    %empty                  { $$ = arena_alloc(p->arena, sizeof *$$); }
  | entries entry           { $$ = $1; VEC_PUSH(p->arena, &$$->entries, $2); }
  | entries error ';'       { $$ = $1; yyerrok; }
  | entries error block     { $$ = $1; yyerrok; }
  ;

entry:
    said args ';' { $$ = (AstTrainEntry){.loc = $1.loc, .end = @3, .key = $1.name, .args = $2}; }
  ;

// --- declarations ----------------------------------------------------------

params:
    '(' ')'                 { $$ = (AstParams){0}; }
  | '(' param_list ')'      { $$ = $2; }
  ;

param_list:
    param                   { $$ = (AstParams){0}; VEC_PUSH(p->arena, &$$, $1); }
  | param_list ',' param    { $$ = $1; VEC_PUSH(p->arena, &$$, $3); }
  ;

param: said shape_opt default { $$ = (AstParam){$1.loc, $1.name, $2, $3}; } ;

default:
    %empty                  { $$ = NULL; }
  | '=' expr                { $$ = $2; }
  ;

shape_opt:
    %empty                  { $$ = NULL; }
  | ':' shape               { $$ = $2; }
  ;

shape:
    '[' elements ']'        { $$ = make_shape(p, @1, (AstName){0}, $2); }
  | said '[' elements ']'   { $$ = make_shape(p, @1, $1, $3); }
  ;

derivative:
    %empty                              { $$ = NULL; }
  | DERIVATIVE '(' names ')' block      { $$ = make_derivative(p, @1, $3, $5); }
  ;

// --- statements ------------------------------------------------------------

block:
    '{' stmts '}'           { $$ = $2; $$->loc = @1; $$->end = @3; }
  | '{' stmts error '}'     { $$ = $2; $$->loc = @1; $$->end = @4; yyerrok; }
  ;

stmts:
    %empty                  { $$ = make_block(p); }
  | stmts stmt              { $$ = $1; block_add(p, $$, $2); }
  | stmts error ';'         { $$ = $1; yyerrok; }
  | stmts error block       { $$ = $1; yyerrok; }
  ;

stmt:
    LET names '=' expr ';' {
      $$ = make_stmt(p, STMT_LET, @1, @5);
      $$->let.names = $2; $$->let.value = $4;
      make_stmt_done(p, $$);
    }
  | postfix assign_op expr ';' {
      $$ = make_stmt(p, STMT_ASSIGN, ast_expr_start($1), @4);
      $$->assign.op = $2; $$->assign.target = $1; $$->assign.value = $3;
      make_stmt_done(p, $$);
    }
  | cond ';' {
      $$ = make_stmt(p, STMT_EXPR, ast_expr_start($1), @2);
      $$->expr = $1;
      make_stmt_done(p, $$);
    }
  | postfix ':' expr ';' {
      $$ = make_stmt(p, STMT_MEMBER, ast_expr_start($1), @4);
      make_member_target(p, $$, $1);
      $$->member.value = $3;
      make_stmt_done(p, $$);
    }
  | RETURN ';'              { $$ = make_stmt(p, STMT_RETURN, @1, @2); make_stmt_done(p, $$); }
  | RETURN exprs ';' {
      $$ = make_stmt(p, STMT_RETURN, @1, @3);
      $$->values = $2;
      make_stmt_done(p, $$);
    }
  | if
  | FOR said IN expr block {
      $$ = make_stmt(p, STMT_FOR, @1, $5->end);
      $$->for_.name = $2; $$->for_.over = $4; $$->for_.body = $5;
      make_stmt_done(p, $$);
    }
  | WHILE expr block {
      $$ = make_stmt(p, STMT_WHILE, @1, $3->end);
      $$->while_.test = $2; $$->while_.body = $3;
      make_stmt_done(p, $$);
    }
  | BREAK ';'               { $$ = make_stmt(p, STMT_BREAK, @1, @2); make_stmt_done(p, $$); }
  | CONTINUE ';'            { $$ = make_stmt(p, STMT_CONTINUE, @1, @2); make_stmt_done(p, $$); }
  | REQUIRE expr ',' expr ';' {
      $$ = make_stmt(p, STMT_REQUIRE, @1, @5);
      $$->require.test = $2; $$->require.text = $4;
      make_stmt_done(p, $$);
    }
  | STAGE_END ';'           { $$ = make_stmt(p, STMT_STAGE_END, @1, @2); make_stmt_done(p, $$); }
  | FN said params block derivative {
      $$ = make_stmt(p, STMT_FN, @1, $5 ? $5->body->end : $4->end);
      $$->fn = make_fn(p, @1, $2, $3, $4, $5);
      make_stmt_done(p, $$);
    }
  | FN params block derivative {
      $$ = make_stmt(p, STMT_FN, @1, $4 ? $4->body->end : $3->end);
      $$->fn = make_fn(p, @1, (AstName){.loc = @1}, $2, $3, $4);
      make_stmt_done(p, $$);
    }
  | OUTPUT said '=' said '(' expr ')' ';' {
      $$ = make_stmt(p, STMT_OUTPUT, @1, @8);
      $$->output.name = $2; $$->output.how = $4; $$->output.value = $6;
      make_stmt_done(p, $$);
    }
  | PARAM said ':' shape init ';' {
      $$ = make_stmt(p, STMT_PARAM, @1, @6);
      $$->param.name = $2; $$->param.shape = $4; $$->param.init = $5;
      make_stmt_done(p, $$);
    }
  | STATE names '=' expr ';' {
      $$ = make_stmt(p, STMT_STATE, @1, @5);
      $$->state.names = $2; $$->state.init = $4;
      make_stmt_done(p, $$);
    }
  | RANK said block {
      $$ = make_stmt(p, STMT_RANK, @1, $3->end);
      $$->rank.name = $2; $$->rank.body = $3;
      make_stmt_done(p, $$);
    }
  | OVERLAP block {
      $$ = make_stmt(p, STMT_OVERLAP, @1, $2->end);
      $$->overlap = $2;
      make_stmt_done(p, $$);
    }
  ;

if:
    IF expr block else {
      $$ = make_stmt(p, STMT_IF, @1, $4 ? $4->end : $3->end);
      $$->if_.test = $2; $$->if_.then = $3; $$->if_.otherwise = $4;
      make_stmt_done(p, $$);
    }
  ;

else:
    %empty                  { $$ = NULL; }
  | ELSE block              { $$ = $2; }
  | ELSE if                 { $$ = make_else_if(p, $2); }
  ;

init:
    %empty                  { $$ = NULL; }
  | '=' expr                { $$ = $2; }
  ;

assign_op:
    '='                     { $$ = ASSIGN_SET; }
  | ADD_SET                 { $$ = ASSIGN_ADD; }
  | SUB_SET                 { $$ = ASSIGN_SUB; }
  | MUL_SET                 { $$ = ASSIGN_MUL; }
  | DIV_SET                 { $$ = ASSIGN_DIV; }
  ;

// --- expressions -----------------------------------------------------------

expr:
    value
  | cond DOTDOT cond        { $$ = make_binary(p, @2, AST_RANGE, $1, $3); }
  ;

value:
    cond
  | FN params block {
      $$ = make_fn_expr(p, make_fn(p, @1, (AstName){.loc = @1}, $2, $3, NULL));
    }
  ;

cond:
    or
  | or '?' expr ':' value   { $$ = make_cond(p, @2, $1, $3, $5); }
  ;

or:
    and
  | or OR and               { $$ = make_binary(p, @2, AST_OR, $1, $3); }
  ;

and:
    not
  | and AND not             { $$ = make_binary(p, @2, AST_AND, $1, $3); }
  ;

not:
    cmp
  | NOT not                 { $$ = make_unary(p, @1, AST_NOT, $2); }
  ;

// A chain parses, so that make_binary can say what is wrong with it.
cmp:
    add
  | cmp cmp_op add          { $$ = make_binary(p, @2, $2, $1, $3); }
  ;

add:
    mul
  | add add_op mul          { $$ = make_binary(p, @2, $2, $1, $3); }
  ;

mul:
    unary
  | mul mul_op unary        { $$ = make_binary(p, @2, $2, $1, $3); }
  ;

cmp_op:
    EQ { $$ = AST_EQ; } | NE { $$ = AST_NE; } | '<' { $$ = AST_LT; } | LE { $$ = AST_LE; }
  | '>' { $$ = AST_GT; } | GE { $$ = AST_GE; }
  ;

add_op: '+' { $$ = AST_ADD; } | '-' { $$ = AST_SUB; } ;

mul_op: '*' { $$ = AST_MUL; } | '/' { $$ = AST_DIV; } | '@' { $$ = AST_MATMUL; } ;

unary:
    postfix
  | '-' unary               { $$ = make_unary(p, @1, AST_NEG, $2); }
  ;

postfix:
    primary
  | postfix '(' args ')'    { $$ = make_call(p, $1, $3); }
  | postfix '[' elements ']' { $$ = make_index(p, @2, $1, $3); }
  | postfix '.' word        { $$ = make_member(p, @3, $1, $3); }
  ;

primary:
    INT                     { $$ = make_int(p, @1, $1); }
  | FLOAT                   { $$ = make_float(p, @1, $1); }
  | STRING                  { $$ = make_string(p, @1, $1); }
  | TRUE                    { $$ = make_bool(p, @1, true); }
  | FALSE                   { $$ = make_bool(p, @1, false); }
  | INFINITY_WORD           { $$ = make_leaf(p, EXPR_INFINITY, @1); }
  | word                    { $$ = make_name(p, @1, $1); }
  | '[' elements ']'        { $$ = make_list(p, @1, $2); }
  | '(' expr ')'            { $$ = make_parens(p, @1, $2); }
  ;

args:
    %empty                  { $$ = (AstArgs){0}; }
  | arg_list
  ;

arg_list:
    arg                     { $$ = (AstArgs){0}; args_add(p, &$$, $1); }
  | arg_list ',' arg        { $$ = $1; args_add(p, &$$, $3); }
  ;

arg:
    expr                    { $$ = (AstArg){ast_expr_start($1), NULL, $1}; }
  | said '=' expr           { $$ = (AstArg){$1.loc, $1.name, $3}; }
  ;

elements:
    %empty                  { $$ = (AstExprs){0}; }
  | element_list
  ;

element_list:
    element                 { $$ = (AstExprs){0}; VEC_PUSH(p->arena, &$$, $1); }
  | element_list ',' element { $$ = $1; VEC_PUSH(p->arena, &$$, $3); }
  ;

element:
    expr
  | DOTDOT                  { $$ = make_leaf(p, EXPR_ELLIPSIS, @1); }
  ;

exprs:
    expr                    { $$ = (AstExprs){0}; VEC_PUSH(p->arena, &$$, $1); }
  | exprs ',' expr          { $$ = $1; VEC_PUSH(p->arena, &$$, $3); }
  ;

names:
    said                    { $$ = (AstNames){0}; VEC_PUSH(p->arena, &$$, $1); }
  | names ',' said          { $$ = $1; VEC_PUSH(p->arena, &$$, $3); }
  ;

said: word                  { $$ = (AstName){@1, $1}; } ;

word: NAME | PARAM | STATE | OUTPUT | OVERLAP | RANK | SCHEDULE | OPTIMIZER | TRAIN ;

%%

static int dsl_yylex(DSL_YYSTYPE *value, Loc *loc, Parser *p, void *scanner) {
  if (p->only_expr && !p->started) {
    p->started = true;
    *loc = p->at;
    return EXPR_START;
  }
  p->before_end = p->token_end;
  int token = dsl_scan(value, loc, scanner);
  if (token == DSL_YYEOF) {
    *loc = p->at;
    p->token_length = 0;
  }
  p->token_end = p->at;
  return token;
}

// Bison calls this only when its stack is full.
static void dsl_yyerror(const Loc *loc, Parser *p, void *scanner, const char *message) {
  (void)scanner;
  (void)message;
  if (!p->too_deep) diag_error(p->diag, *loc, "this is nested too deeply");
  p->too_deep = true;
}

// --- syntax errors ---------------------------------------------------------

// What the parser could have gone on with, folded into what a reader would
// say: a thing that starts an expression is "an expression".
typedef struct {
  bool semicolon, name, expression, statement, declaration;
  yysymbol_kind_t others[4];
  int n_others;
} Expected;

static bool is_contextual(yysymbol_kind_t kind) {
  return kind >= YYSYMBOL_PARAM && kind <= YYSYMBOL_TRAIN;
}

// Operators are left out where the alternative is to end: after `f(x` one
// wants to read "expected ',' or ')'" and not all that may follow an operand.
static bool is_operator(yysymbol_kind_t kind) {
  switch (kind) {
    case YYSYMBOL_OR: case YYSYMBOL_AND: case YYSYMBOL_EQ: case YYSYMBOL_NE: case YYSYMBOL_LE:
    case YYSYMBOL_GE: case YYSYMBOL_DOTDOT: case YYSYMBOL_ADD_SET: case YYSYMBOL_SUB_SET:
    case YYSYMBOL_MUL_SET: case YYSYMBOL_DIV_SET:
      return true;
    default: {
      const char *name = yysymbol_name(kind);
      return name[0] == '\'' && strchr("<>+-*/@?.([", name[1]) != NULL;
    }
  }
}

static Expected fold_expected(const yypcontext_t *context) {
  enum { MANY = 80 };
  yysymbol_kind_t kinds[MANY];
  int n = yypcontext_expected_tokens(context, kinds, MANY);
  Expected expected = {0};
  for (int i = 0; i < n; i++) {
    if (kinds[i] == YYSYMBOL_INT) expected.expression = true;
    if (kinds[i] == YYSYMBOL_RETURN) expected.statement = true;
    if (kinds[i] == YYSYMBOL_USE) expected.declaration = true;
  }
  for (int i = 0; i < n; i++) {
    yysymbol_kind_t kind = kinds[i];
    if (kind == YYSYMBOL_NAME) expected.name = true;
    if (strcmp(yysymbol_name(kind), "';'") == 0) expected.semicolon = true;
    bool hidden = expected.expression || kind == YYSYMBOL_NAME || is_contextual(kind);
    if (hidden) continue;
    if (is_operator(kind) && n > 4) continue;
    if (expected.n_others < 4) expected.others[expected.n_others] = kind;
    expected.n_others++;
  }
  return expected;
}

// Token names that are words or signs get quotes; "a name" and the like don't.
static void put_symbol(Str *out, yysymbol_kind_t kind) {
  const char *name = yysymbol_name(kind);
  bool bare = name[0] == '\'' || kind <= YYSYMBOL_STRING;
  str_printf(out, bare ? "%s" : "'%s'", name);
}

static void put_found(Str *out, const Parser *p, yysymbol_kind_t found) {
  if (found == YYSYMBOL_YYEOF) {
    str_puts(out, p->only_expr ? "the end" : "the end of the file");
  } else if (p->token_length > 40) {
    put_symbol(out, found);
  } else {
    str_printf(out, "'%.*s'", p->token_length, p->token_text);
  }
}

static void put_others(Str *out, const Expected *expected) {
  int n = expected->n_others + (expected->name ? 1 : 0);
  for (int i = 0; i < n; i++) {
    if (i > 0) str_puts(out, i + 1 < n ? ", " : " or ");
    if (i < expected->n_others) put_symbol(out, expected->others[i]);
    else str_puts(out, "a name");
  }
}

static int yyreport_syntax_error(const yypcontext_t *context, Parser *p, void *scanner) {
  (void)scanner;
  yysymbol_kind_t found = yypcontext_token(context);
  Loc loc = *yypcontext_location(context);
  Expected expected = fold_expected(context);
  bool reserved = found >= YYSYMBOL_USE && found <= YYSYMBOL_INFINITY_WORD;
  // Of a line with an unreadable part enough was said.
  if (loc.line == p->broken_line || p->before_end.line == p->broken_line) return 0;
  Str text = {0};
  if (expected.semicolon && !expected.expression) {
    // The place is where the ';' is missing, not where that was noticed.
    loc = p->before_end;
    str_puts(&text, "expected ';' before ");
    put_found(&text, p, found);
  } else if (expected.declaration && p->only_expr) {
    str_puts(&text, "expected the end before ");
    put_found(&text, p, found);
  } else if (expected.declaration) {
    str_puts(&text, "expected a declaration (use, const, fn, module, schedule, optimizer or train) before ");
    put_found(&text, p, found);
  } else if (expected.statement) {
    bool at_end = found == YYSYMBOL_YYEOF;
    str_puts(&text, at_end ? "expected '}' before " : "expected a statement before ");
    put_found(&text, p, found);
  } else if (expected.expression) {
    str_puts(&text, "expected an expression before ");
    put_found(&text, p, found);
  } else if (expected.name && expected.n_others == 0 && reserved) {
    str_puts(&text, "expected a name, but ");
    put_found(&text, p, found);
    str_puts(&text, " is a reserved word");
  } else if (expected.n_others + expected.name > 0 && expected.n_others <= 4) {
    str_puts(&text, "expected ");
    put_others(&text, &expected);
    str_puts(&text, " before ");
    put_found(&text, p, found);
  } else {
    str_puts(&text, "unexpected ");
    put_found(&text, p, found);
  }
  diag_error(p->diag, loc, "%s", str_text(&text));
  if (p->only_expr) p->broken_line = loc.line;
  str_free(&text);
  return 0;
}
