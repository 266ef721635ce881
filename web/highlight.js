// Splits source code into coloured parts: comments, strings, numbers, keywords. One scanner for all
// languages, with a table of what differs; a language that is not known has strings and numbers
// only. Takes time linear in the text's length. No DOM here.

const words = (text) => new Set(text.split(' '));

const C_WORDS =
    'auto bool break case char class const constexpr continue default delete do double else enum ' +
    'explicit extern false float for friend goto if inline int long mutable namespace new noexcept ' +
    'nullptr operator override private protected public register return short signed sizeof static ' +
    'static_assert struct switch template this throw true try typedef typename union unsigned using ' +
    'virtual void volatile while';
const JS_WORDS =
    'abstract any as async await boolean break case catch class const continue declare default ' +
    'delete do else enum export extends false finally for from function get if implements import in ' +
    'infer instanceof interface keyof let new null number of private protected public readonly ' +
    'return set static string super switch this throw true try type typeof undefined unknown var ' +
    'void while with yield';
const JAVA_WORDS =
    'abstract as boolean break byte case catch char class const continue data default do double else ' +
    'enum extends false final finally float for foreach fun get if implements import in instanceof ' +
    'int interface internal is long namespace native new null object open out override package ' +
    'private protected public readonly record return sealed set short static string super switch ' +
    'synchronized this throw throws true try using val var virtual void volatile when where while';
const GO_WORDS =
    'any bool break byte case chan const continue default defer else error fallthrough false float32 ' +
    'float64 for func go goto if import int int32 int64 interface map nil package range return rune ' +
    'select string struct switch true type uint uint32 uint64 var';
const RUST_WORDS =
    'as async await bool break char const continue crate dyn else enum extern f32 f64 false fn for i32 ' +
    'i64 if impl in let loop match mod move mut pub ref return self Self static str struct super ' +
    'trait true type u32 u64 u8 unsafe use usize where while';
const PYTHON_WORDS =
    'and as assert async await break case class continue def del elif else except False finally for ' +
    'from global if import in is lambda match None nonlocal not or pass raise return self True try ' +
    'while with yield';
const RUBY_WORDS =
    'alias and begin break case class def do else elsif end ensure false for if in module next nil not ' +
    'or redo require rescue retry return self super then true undef unless until when while yield';
const SHELL_WORDS =
    'alias break case cd continue do done echo elif else esac eval exec exit export fi for function if ' +
    'in local read return set shift source sudo test then trap unset until while';
const SQL_WORDS =
    'add all alter and as asc begin between by case check column commit constraint create cross ' +
    'default delete desc distinct drop else end exists foreign from full group having in index inner ' +
    'insert into is join key left like limit not null offset on or order outer primary references ' +
    'right rollback select set table then union unique update values view when where with';
const LUA_WORDS =
    'and break do else elseif end false for function goto if in local nil not or repeat return then ' +
    'true until while';

// line: what begins a comment to the end of the line; block: a comment's begin and end.
const SLASHES = { line: ['//'], block: ['/*', '*/'] };
const HASH = { line: ['#'] };
const LANGUAGES = [
    { names: 'c h cpp c++ cc hpp cuda metal objc glsl', ...SLASHES, words: words(C_WORDS) },
    {
        names: 'js javascript jsx ts typescript tsx mjs',
        ...SLASHES,
        words: words(JS_WORDS),
        multi: ['`'],
    },
    {
        names: 'java kotlin kt cs csharp c# scala swift dart php',
        ...SLASHES,
        words: words(JAVA_WORDS),
    },
    { names: 'go golang', ...SLASHES, words: words(GO_WORDS), multi: ['`'] },
    { names: 'rust rs zig', ...SLASHES, words: words(RUST_WORDS), quotes: '"' },
    { names: 'css scss less', ...SLASHES, words: new Set() },
    { names: 'python py python3', ...HASH, words: words(PYTHON_WORDS), multi: ['"""', "'''"] },
    { names: 'ruby rb', ...HASH, words: words(RUBY_WORDS) },
    {
        names: 'sh bash zsh shell console fish dockerfile make makefile',
        ...HASH,
        words: words(SHELL_WORDS),
    },
    { names: 'yaml yml toml ini conf', ...HASH, words: words('true false null yes no on off') },
    {
        names: 'r julia jl perl pl',
        ...HASH,
        words: words(`${RUBY_WORDS} function TRUE FALSE NULL`),
    },
    {
        names: 'sql postgres postgresql mysql sqlite',
        line: ['--'],
        block: ['/*', '*/'],
        words: words(SQL_WORDS),
        anyCase: true,
    },
    { names: 'lua haskell hs', line: ['--'], words: words(LUA_WORDS) },
    { names: 'html xml svg vue', line: [], block: ['<!--', '-->'], words: new Set(), tags: true },
    { names: 'json jsonl json5', line: ['//'], words: words('true false null') },
];
const BY_NAME = new Map(
    LANGUAGES.flatMap((language) => language.names.split(' ').map((name) => [name, language])),
);
const UNKNOWN = { line: [], words: new Set() };

const WORD = /[\p{L}_$][\p{L}\p{N}_$]*/uy;
const NUMBER = /(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\w*/y;
const DULL = /[\s;,.(){}[\]=+*&|!?:%^~@]+/y; // begins nothing in any language
const TAG = /<\/?[A-Za-z][\w:.-]*|\/?>/y;

const matchAt = (pattern, text, at) => {
    pattern.lastIndex = at;
    return pattern.exec(text)?.[0] ?? null;
};

const endOf = (text, from, mark) => {
    const end = text.indexOf(mark, from);
    return end < 0 ? text.length : end + mark.length;
};

// Where the string that begins at `at` ends: at its quote, or with the line.
function stringEnd(text, at) {
    const quote = text[at];
    for (let i = at + 1; i < text.length; i++) {
        if (text[i] === '\\') i++;
        else if (text[i] === quote) return i + 1;
        else if (text[i] === '\n') return i;
    }
    return text.length;
}

// The kind and the end of what begins at `at`.
function next(text, at, language) {
    const dull = matchAt(DULL, text, at);
    if (dull) return [null, at + dull.length];
    const { line, block, multi = [], quotes = '"\'' } = language;
    if (block && text.startsWith(block[0], at))
        return ['comment', endOf(text, at + block[0].length, block[1])];
    // A # within a word, as in $#, begins no comment.
    const atWord = at === 0 || /[\s;(){}[\],]/.test(text[at - 1]);
    for (const mark of line)
        if (text.startsWith(mark, at) && (mark !== '#' || atWord)) {
            const end = text.indexOf('\n', at);
            return ['comment', end < 0 ? text.length : end];
        }
    for (const mark of multi)
        if (text.startsWith(mark, at)) return ['string', endOf(text, at + mark.length, mark)];
    if (quotes.includes(text[at])) return ['string', stringEnd(text, at)];
    const tag = language.tags && matchAt(TAG, text, at);
    if (tag) return ['keyword', at + tag.length];
    const word = matchAt(WORD, text, at);
    if (word) {
        const known = language.words.has(language.anyCase ? word.toLowerCase() : word);
        return [known ? 'keyword' : null, at + word.length];
    }
    const number = matchAt(NUMBER, text, at);
    return number ? ['number', at + number.length] : [null, at + 1];
}

// Parts of a text, [kind, text]; the kind is comment, string, number, keyword, or null.
export function highlight(text, name) {
    const language = BY_NAME.get(name.toLowerCase()) ?? UNKNOWN;
    const parts = [];
    let plain = 0;
    for (let at = 0; at < text.length;) {
        const [kind, end] = next(text, at, language);
        if (kind) {
            if (plain < at) parts.push([null, text.slice(plain, at)]);
            parts.push([kind, text.slice(at, end)]);
            plain = end;
        }
        at = end;
    }
    if (plain < text.length) parts.push([null, text.slice(plain)]);
    return parts;
}
