// The grammar. Actions only build tree nodes. After a syntax error the parser continues after the next `;` or `}`, so
// that one run reports several errors.
%require "3.8"
%define api.pure full
%define api.prefix {hd_yy}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0
%param {Parser *p}

%code requires {
#include "frontend/syntax/parser.h"
#include <ctype.h>
}
%code provides {
int hd_yylex(HD_YYSTYPE *value, HD_YYLTYPE *span, Parser *p);
}
%code {
#define YYMAXDEPTH 4000
#define YYLLOC_DEFAULT(at, rhs, n)                                                                                     \
    do {                                                                                                               \
        (at).lo = (n) ? YYRHSLOC(rhs, 1).lo : YYRHSLOC(rhs, 0).hi;                                                     \
        (at).hi = (n) ? YYRHSLOC(rhs, n).hi : YYRHSLOC(rhs, 0).hi;                                                     \
    } while (0)

static void yyerror(const Span *s, Parser *p, const char *text) { (void)s, (void)p, (void)text; }

// A node with its children: `kids` is a list whose elements become the node's own, or NULL.
static Node *make(Parser *p, NodeKind kind, Span s, const char *name, Node *a, Node *b, Node *c, Node *kids) {
    Node *n = hd_ast_node(p->arena, kind, s);
    n->name = name;
    n->a = a;
    n->b = b;
    n->c = c;
    if (kids) {
        n->kids = kids->kids;
        n->n = kids->n;
        n->cap = kids->cap;
    }
    hd_ast_measure(n);
    if (n->depth > HD_MAX_NESTING && !p->too_deep) {
        p->too_deep = true;
        hd_parse_error(p, s, "this nests more than %d deep: split it with 'let'", HD_MAX_NESTING);
    }
    return n;
}

static Node *group(Parser *p, Span s, Node *kids) { return make(p, N_BLOCK, s, NULL, NULL, NULL, NULL, kids); }

static Node *list(Parser *p, Span s) { return hd_ast_node(p->arena, N_LIST, s); }

static Node *list_of(Parser *p, Span s, Node *first) {
    Node *l = list(p, s);
    hd_ast_add(p->arena, l, first);
    return l;
}

static Node *add(Parser *p, Node *l, Node *kid) {
    hd_ast_add(p->arena, l, kid);
    return l;
}

static Node *binary(Parser *p, Span s, Operator op, Node *a, Node *b) {
    Node *n = make(p, N_BINARY, s, NULL, a, b, NULL, NULL);
    n->op = op;
    return n;
}

static Node *unary(Parser *p, Span s, Operator op, Node *a) {
    Node *n = make(p, N_UNARY, s, NULL, a, NULL, NULL, NULL);
    n->op = op;
    return n;
}

// `repeat(n)` or, with an index that the arguments of the instances may use, `repeat(i < n)`.
static Node *repeat(Parser *p, Span s, Node *count, Node *as, Node *arguments) {
    const bool indexed = count->kind == N_BINARY && count->op == BIN_LT && count->a->kind == N_NAME;
    if (count->kind == N_BINARY && count->op == BIN_LE)
        hd_parse_error(p, count->span, "an index is less than the count, as in 'repeat(i < n)': it begins at 0");
    return make(p, N_MEMBER, s, NULL, indexed ? count->b : count, as, indexed ? count->a : NULL, arguments);
}

static Node *integer(Parser *p, Span s, int64_t i) {
    Node *n = hd_ast_node(p->arena, N_INT, s);
    n->i = i;
    return n;
}
}

%union {
    int64_t i;
    double f;
    const char *name;
    Node *node;
}

%token END 0 "end of the text"
%token START_FILE "a file" START_SET "a setting"
%token MODEL "'model'" MODULE "'module'" PARAM "'param'" FN "'fn'" LET "'let'" RETURN "'return'"
%token BUFFER "'buffer'" UPDATE "'update'"
%token AS "'as'" REPEAT "'repeat'" IF "'if'" ELSE "'else'"
%token IMPORT "'import'"
%token <name> TRAIN "'train'" SCHEDULE "'schedule'" NAME "a name" TEXT "a text in quotes"
%token <i> INT "an integer"
%token <f> FLOAT "a number" FACTOR "a factor"
%token OR "'||'" AND "'&&'" EQ "'=='" NE "'!='" UPTO "'..'" LE "'<='" GE "'>='"

%right '?' ':'
%left OR
%left AND
%left EQ NE
%left '<' '>' LE GE
%left '+' '-'
%left '*' '/' '%'
%precedence UNARY
%precedence '(' '[' '.'

%type <node> file item module arguments argument_list argument members member instance param buffer marks fn when
%type <node> else type dims shape sizes size block statements statement names values train schedule settings setting
%type <node> constant import sized_arguments sized_list sized call_list call_argument expr
%type <node> as choice other fn_arguments fn_argument_list fn_argument set
%type <name> path

%%
start: START_FILE file  { p->result = $file; }
     | START_SET set    { p->result = $set; }
     ;

file: %empty            { $$ = make(p, N_FILE, @$, NULL, NULL, NULL, NULL, NULL); }
    | file item         { hd_ast_add(p->arena, $1, $item); $$ = $1; }
    | file error '}'    { $$ = $1; }
    ;
item: MODEL NAME arguments '{' members '}'   { $$ = make(p, N_MODEL, @NAME, $NAME, NULL, NULL, $arguments, $members); }
    | module | fn | train | schedule | constant | import
    ;
module: MODULE NAME arguments '{' members '}'
      { $$ = make(p, N_MODULE, @NAME, $NAME, NULL, NULL, $arguments, $members); }
    | MODULE error '{' members '}'            { $$ = make(p, N_MODULE, @1, "", NULL, NULL, list(p, @1), $members); }
    ;

arguments: %empty                 { $$ = list(p, @$); }
    | '(' ')'                     { $$ = list(p, @$); }
    | '(' argument_list ')'       { $$ = $2; }
    ;
argument_list: argument           { $$ = list_of(p, @$, $1); }
    | argument_list ',' argument  { $$ = add(p, $1, $3); }
    ;
argument: NAME                    { $$ = make(p, N_ARGUMENT, @NAME, $NAME, NULL, NULL, NULL, NULL); }
    | NAME '=' expr               { $$ = make(p, N_ARGUMENT, @NAME, $NAME, $expr, NULL, NULL, NULL); }
    ;

members: %empty                   { $$ = list(p, @$); }
    | members member              { $$ = add(p, $1, $2); }
    | members error ';'           { $$ = $1; }
    ;
member: module | param | buffer | fn
    | NAME '=' instance ';'       { $$ = $instance; $$->name = $NAME; $$->span = @NAME; }
    | choice
    ;
choice: IF expr '{' members '}' other
      { $$ = make(p, N_WHEN, @1, NULL, $expr, group(p, @members, $members), $other, NULL); }
    ;
other: %empty                     { $$ = NULL; }
    | ELSE '{' members '}'        { $$ = group(p, @members, $members); }
    | ELSE choice                 { $$ = group(p, @choice, list_of(p, @choice, $choice)); }
    ;
instance: NAME sized_arguments as
      { $$ = make(p, N_MEMBER, @NAME, NULL, NULL, $as, NULL, $sized_arguments); $$->text = $NAME; }
    | REPEAT '(' expr ')' NAME sized_arguments as
      { $$ = repeat(p, @NAME, $expr, $as, $sized_arguments); $$->text = $NAME; }
    ;
param: PARAM NAME ':' shape '=' expr as marks ';'  { $$ = make(p, N_PARAM, @NAME, $NAME, $shape, $expr, $as, $marks); }
    ;
buffer: BUFFER NAME ':' shape '=' expr as ';'      { $$ = make(p, N_BUFFER, @NAME, $NAME, $shape, $expr, $as, NULL); }
    ;
as: %empty                        { $$ = NULL; }
    | AS TEXT                     { $$ = make(p, N_AS, @TEXT, NULL, NULL, NULL, NULL, NULL); $$->text = $TEXT; }
    ;
marks: %empty                     { $$ = list(p, @$); }
    | marks ',' NAME              { $$ = add(p, $1, make(p, N_NAME, @NAME, $NAME, NULL, NULL, NULL, NULL)); }
    ;
dims: '[' ']'                     { $$ = list(p, @$); }
    | '[' values ']'              { $$ = $values; $$->span = @$; }
    ;

shape: '[' ']'                    { $$ = list(p, @$); }
    | '[' sizes ']'               { $$ = $sizes; $$->span = @$; }
    ;
sizes: size                       { $$ = list_of(p, @$, $1); }
    | sizes ',' size              { $$ = add(p, $1, $3); }
    ;
size: expr
    | expr NAME NAME              { $$ = make(p, N_OVER, @3, $3, $1, NULL, NULL, NULL); $$->text = $2; }
    ;

fn: FN NAME fn_arguments block    { $$ = make(p, N_FN, @NAME, $NAME, $block, NULL, $fn_arguments, NULL); }
    | FN error block              { $$ = make(p, N_FN, @1, "", $block, NULL, list(p, @1), NULL); }
    ;
fn_arguments: '(' ')'             { $$ = list(p, @$); }
    | '(' fn_argument_list ')'    { $$ = $2; }
    ;
fn_argument_list: fn_argument           { $$ = list_of(p, @$, $1); }
    | fn_argument_list ',' fn_argument  { $$ = add(p, $1, $3); }
    ;
fn_argument: argument
    | NAME ':' type               { $$ = make(p, N_ARGUMENT, @NAME, $NAME, NULL, $type, NULL, NULL); }
    ;
type: NAME                        { $$ = make(p, N_TYPE, @$, $NAME, list(p, @$), NULL, NULL, NULL); }
    | NAME dims                   { $$ = make(p, N_TYPE, @$, $NAME, $dims, NULL, NULL, NULL); }
    | dims                        { $$ = make(p, N_TYPE, @$, NULL, $dims, NULL, NULL, NULL); }
    ;

block: '{' statements '}'         { $$ = make(p, N_BLOCK, @$, NULL, NULL, NULL, NULL, $statements); }
    | '{' statements error '}'    { $$ = make(p, N_BLOCK, @$, NULL, NULL, NULL, NULL, $statements); }
    ;
statements: %empty                { $$ = list(p, @$); }
    | statements statement        { $$ = add(p, $1, $2); }
    | statements error ';'        { $$ = $1; }
    ;
statement: LET names '=' expr ';' { $$ = make(p, N_LET, @$, NULL, $expr, NULL, NULL, $names); }
    | UPDATE NAME '=' expr ';'    { $$ = make(p, N_UPDATE, @NAME, $NAME, $expr, NULL, NULL, NULL); }
    | RETURN call_list ';'        { $$ = make(p, N_RETURN, @$, NULL, NULL, NULL, NULL, $call_list); }
    | when
    ;
when: IF expr block else          { $$ = make(p, N_WHEN, @1, NULL, $expr, $block, $else, NULL); }
    ;
else: %empty                      { $$ = NULL; }
    | ELSE block                  { $$ = $block; }
    | ELSE when                   { $$ = make(p, N_BLOCK, @when, NULL, NULL, NULL, NULL, list_of(p, @when, $when)); }
    ;
names: NAME                       { $$ = list_of(p, @$, make(p, N_NAME, @NAME, $NAME, NULL, NULL, NULL, NULL)); }
    | names ',' NAME              { $$ = add(p, $1, make(p, N_NAME, @NAME, $NAME, NULL, NULL, NULL, NULL)); }
    ;
values: expr                      { $$ = list_of(p, @$, $1); }
    | values ',' expr             { $$ = add(p, $1, $3); $$->span = @$; }
    ;

train: TRAIN NAME '{' settings '}'       { $$ = make(p, N_TRAIN, @NAME, $NAME, NULL, NULL, NULL, $settings); }
    ;
schedule: SCHEDULE NAME '{' settings '}' { $$ = make(p, N_SCHEDULE, @NAME, $NAME, NULL, NULL, NULL, $settings); }
    ;
settings: %empty                  { $$ = list(p, @$); }
    | settings setting            { $$ = add(p, $1, $2); }
    | settings error ';'          { $$ = $1; }
    ;
setting: NAME '=' values ';'              { $$ = make(p, N_SETTING, @NAME, $NAME, $values, NULL, NULL, NULL); }
    | NAME values ';'                     { $$ = make(p, N_SETTING, @NAME, $NAME, $values, NULL, NULL, NULL); }
    | NAME '{' settings '}'               { $$ = make(p, N_SETTING, @NAME, $NAME, NULL, NULL, NULL, $settings); }
    | NAME values '{' settings '}'        { $$ = make(p, N_SETTING, @NAME, $NAME, $values, NULL, NULL, $settings); }
    | NAME values NAME[own] '{' settings '}'
      { $$ = make(p, N_SETTING, @1, $1, $values, make(p, N_NAME, @own, $own, NULL, NULL, NULL, NULL), NULL,
                  $settings); }
    ;
set: path '=' values              { $$ = make(p, N_SETTING, @path, $path, $values, NULL, NULL, NULL); }
    ;
path: NAME | TRAIN | SCHEDULE
    | path '.' NAME               { $$ = hd_internf(p->cx, "%s.%s", $1, $NAME); }
    ;

constant: LET NAME '=' expr ';'   { $$ = make(p, N_LET, @NAME, $NAME, $expr, NULL, NULL, NULL); }
    ;
import: IMPORT TEXT[name] ';'
      { $$ = make(p, N_IMPORT, @name, NULL, NULL, NULL, NULL, NULL); $$->text = $name; }
    | IMPORT error ';'            { $$ = make(p, N_IMPORT, @1, NULL, NULL, NULL, NULL, NULL); }
    ;

sized_arguments: %empty           { $$ = list(p, @$); }
    | '(' ')'                     { $$ = list(p, @$); }
    | '(' sized_list ')'          { $$ = $2; }
    ;
sized_list: sized                 { $$ = list_of(p, @$, $1); }
    | sized_list ',' sized        { $$ = add(p, $1, $3); }
    ;
sized: size
    | NAME '=' size               { $$ = make(p, N_NAMED, @NAME, $NAME, $size, NULL, NULL, NULL); }
    ;
call_list: call_argument          { $$ = list_of(p, @$, $1); }
    | call_list ',' call_argument { $$ = add(p, $1, $3); }
    ;
call_argument: expr
    | NAME '=' expr               { $$ = make(p, N_NAMED, @NAME, $NAME, $expr, NULL, NULL, NULL); }
    ;

expr: INT                         { $$ = integer(p, @$, $1); }
    | FLOAT                       { $$ = hd_ast_node(p->arena, N_FLOAT, @$); $$->f = $1; }
    | FACTOR                      { $$ = hd_ast_node(p->arena, N_FACTOR, @$); $$->f = $1; }
    | NAME                        { $$ = make(p, N_NAME, @$, $1, NULL, NULL, NULL, NULL); }
    | TEXT                        { $$ = hd_ast_node(p->arena, N_TEXT, @$); $$->text = $1; }
    | '(' expr ')'                { $$ = $2; }
    | '[' values ']'              { $$ = make(p, N_LIST, @$, NULL, NULL, NULL, NULL, $2); }
    | expr '(' ')'                { $$ = make(p, N_CALL, @1, NULL, $1, NULL, NULL, NULL); }
    | expr '(' call_list ')'      { $$ = make(p, N_CALL, @1, NULL, $1, NULL, NULL, $3); }
    | expr '.' NAME               { $$ = make(p, N_DOT, @$, $3, $1, NULL, NULL, NULL); }
    | expr '.' INT
      { $$ = make(p, N_DOT, @$, hd_internf(p->cx, "%lld", (long long)$3), $1, NULL, NULL, NULL); }
    | expr '[' expr ']'           { $$ = make(p, N_INDEX, @$, NULL, $1, $3, $3, NULL); }
    | expr '[' expr UPTO expr ']' { $$ = make(p, N_INDEX, @$, NULL, $1, $3, $5, NULL); }
    | expr '[' expr UPTO ']'      { $$ = make(p, N_INDEX, @$, NULL, $1, $3, NULL, NULL); }
    | '-' expr %prec UNARY        { $$ = unary(p, @$, UN_NEG, $2); }
    | '!' expr %prec UNARY        { $$ = unary(p, @$, UN_NOT, $2); }
    | expr '+' expr               { $$ = binary(p, @$, BIN_ADD, $1, $3); }
    | expr '-' expr               { $$ = binary(p, @$, BIN_SUB, $1, $3); }
    | expr '*' expr               { $$ = binary(p, @$, BIN_MUL, $1, $3); }
    | expr '/' expr               { $$ = binary(p, @$, BIN_DIV, $1, $3); }
    | expr '%' expr               { $$ = binary(p, @$, BIN_REM, $1, $3); }
    | expr '<' expr               { $$ = binary(p, @$, BIN_LT, $1, $3); }
    | expr '>' expr               { $$ = binary(p, @$, BIN_GT, $1, $3); }
    | expr LE expr                { $$ = binary(p, @$, BIN_LE, $1, $3); }
    | expr GE expr                { $$ = binary(p, @$, BIN_GE, $1, $3); }
    | expr EQ expr                { $$ = binary(p, @$, BIN_EQ, $1, $3); }
    | expr NE expr                { $$ = binary(p, @$, BIN_NE, $1, $3); }
    | expr AND expr               { $$ = binary(p, @$, BIN_AND, $1, $3); }
    | expr OR expr                { $$ = binary(p, @$, BIN_OR, $1, $3); }
    | expr '?' expr ':' expr      { $$ = make(p, N_SELECT, @$, NULL, $1, $3, $5, NULL); }
    ;
%%

void hd_parse_error(Parser *p, Span s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = hd_vsprintf(p->arena, fmt, ap);
    va_end(ap);
    p->errors++;
    hd_error(p->cx, s, "%s", text);
}

static bool is_operator(yysymbol_kind_t k) {
    switch ((int)k) {
    case YYSYMBOL_OR: case YYSYMBOL_AND: case YYSYMBOL_EQ: case YYSYMBOL_NE: case YYSYMBOL_LE: case YYSYMBOL_GE:
        return true;
    default: break;
    }
    const char *s = yysymbol_name(k);
    return s[0] == '\'' && strchr("+-*/%<>?(.[", s[1]) && s[1];
}

// What could be here; operators, where there are several, count as one thing.
static int expected_names(const yypcontext_t *at, const char **names) {
    yysymbol_kind_t expected[YYNTOKENS];
    int n = yypcontext_expected_tokens(at, expected, YYNTOKENS), kept = 0, operators = 0;
    for (int i = 0; i < n; i++) operators += is_operator(expected[i]);
    for (int i = 0; i < n; i++)
        if (operators < 4 || !is_operator(expected[i])) names[kept++] = yysymbol_name(expected[i]);
    if (operators > 3) names[kept++] = "an operator";
    return kept;
}

// Words of other languages that begin a declaration or a statement, seen when what follows is no part of ours.
static const char *other_word(const char *text, size_t n) {
    static const char *const words[][2] = {
        {"elif", "; write 'else if'"},
        {"elsif", "; write 'else if'"},
        {"elseif", "; write 'else if'"},
        {"match", "; write 'if ... { } else if ... { }'"},
        {"switch", "; write 'if ... { } else if ... { }'"},
        {"case", "; write 'if ... { } else if ... { }'"},
        {"for", "; a loop over modules is 'name = repeat(i < n) Module(i);' among the members"},
        {"while", "; there are no loops: 'name = repeat(i < n) Module(i);' repeats modules"},
        {"def", "; a function is 'fn name(x) { ... }'"},
        {"func", "; a function is 'fn name(x) { ... }'"},
        {"function", "; a function is 'fn name(x) { ... }'"},
        {"class", "; a module is 'module Name(arguments) { ... }'"},
        {"const", "; a constant is 'let name = value;', at the top of a file"},
        {"var", "; a value is named once: 'let name = value;'"},
        {"from", "; another file is 'import \"file.hd\";'"}};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strlen(words[k][0]) == n && !strncmp(words[k][0], text, n)) return words[k][1];
    return "";
}

// The word before a place, of `n` letters; 0: there is none.
static const char *word_before(const char *text, const char *at, size_t *n) {
    while (at > text && at[-1] == ' ') at--;
    const char *end = at;
    while (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_')) at--;
    *n = (size_t)(end - at);
    return at;
}

// Words of Python that stand where something else may; `next`: the text behind the word, `statement`: whether one of a
// function may begin there.
static const char *python_word(const char *text, size_t n, const char *next, bool statement) {
    static const char *const words[][2] = {
        {"and", "; write '&&'"},
        {"or", "; write '||'"},
        {"not", "; write '!'"},
        {"in", "; of a list: 'repeat(i < size(list)) Module(list[i])'; to compare: == and !="},
        {"if", "; write 'condition ? a : b'"},
        {"for", "; a loop over modules is 'name = repeat(n) Module;' among the members"},
        {"print", "; a result of the loss is logged: 'return loss, name = value;'"}};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strlen(words[k][0]) == n && !strncmp(words[k][0], text, n)) return words[k][1];
    next += strspn(next, " ");
    if (statement && *next && strchr("+-*/", *next)) next++;
    return statement && next[0] == '=' && next[1] != '=' ? "; a value is named once: 'let name = value;'" : "";
}

static bool expects(int n, const char *const *names, const char *what) {
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], what)) return true;
    return false;
}

// Whether the word before this place is `word`.
static bool follows(const char *text, const char *at, const char *word) {
    const size_t n = strlen(word);
    while (at > text && (at[-1] == ' ' || at[-1] == '\n')) at--;
    return (size_t)(at - text) >= n && !strncmp(at - n, word, n);
}

static int yyreport_syntax_error(const yypcontext_t *at, Parser *p) {
    enum { MAX_SHOWN = 9 };
    const char *names[YYNTOKENS];
    if (p->cut) return 0;
    yysymbol_kind_t got = yypcontext_token(at);
    int n = expected_names(at, names);
    Out text = hd_out(p->arena);
    Span s = *yypcontext_location(at);
    const bool closes = !strcmp(yysymbol_name(got), "'}'") && expects(n, names, "'model'");
    if (p->errors && (got == YYSYMBOL_ELSE || closes)) return 0; // what it belongs to was left out after an error
    if (got == YYSYMBOL_YYEOF || s.hi == s.lo) hd_puts(&text, "unexpected end of the text");
    else hd_printf(&text, "unexpected '%.*s'", s.hi - s.lo < 40 ? (int)(s.hi - s.lo) : 40, p->text + (s.lo - p->base));
    for (int i = 0; i < n && n <= MAX_SHOWN; i++)
        hd_printf(&text, "%s%s", i == 0 ? ", expected " : i + 1 < n ? ", " : " or ", names[i]);
    const char *word = p->text + (s.lo - p->base), *next = p->text + (s.hi - p->base);
    const bool statement = got == YYSYMBOL_NAME && expects(n, names, "'let'") && expects(n, names, "'return'");
    const char *hint = python_word(word, s.hi - s.lo, next, statement);
    if (*word == ',' && expects(n, names, "')'") && !expects(n, names, "','"))
        hint = "; a list stands in [ ], and the values of a setting stand alone: 'betas = 0.9, 0.95;'";
    if (follows(p->text, word, "import")) hint = ", as in 'import \"file.hd\";'";
    if (*word == '.' && expects(n, names, "'as'")) hint = "; a module is named alone: 'name = Linear(dim, dim);'";
    if (*word == '{' && (follows(p->text, word, "train") || follows(p->text, word, "schedule")))
        hint = ": the model's, as in 'train Model {'";
    const bool slices = (*word == ':' && word > p->text && word[-1] == '[') ||
                        (*word == ',' && expects(n, names, "']'") && !expects(n, names, "','"));
    if (slices) hint = "; a part of a tensor is slice(x, axis, start, size)";
    if (*word == '=' && expects(n, names, "an operator") && !expects(n, names, "'='"))
        hint = "; values are compared by ==";
    if (*word == '[' && expects(n, names, "'repeat'")) hint = "; several modules are 'name = repeat(i < n) Module(i);'";
    size_t before;
    const char *begins = word_before(p->text, word, &before);
    if (!*hint) hint = other_word(word, s.hi - s.lo);
    if (!*hint) hint = other_word(begins, before);
    hd_parse_error(p, s, "%s%s", text.text, hint);
    return 0;
}
