// Reads the LaTeX that models write into a tree of MathML elements, [tag, attributes, ...children],
// where a child is a text or another such array. What is not known is shown as it is written. The
// text is hostile: nesting is bounded, and time is linear in its length. No DOM here.

const MAX_DEPTH = 40;
const table = (text) => new Map(text.split(' ').map((pair) => pair.split(':')));

const LETTERS = table(
    'alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι ' +
        'kappa:κ lambda:λ mu:μ nu:ν xi:ξ pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ ' +
        'upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ Delta:Δ Theta:Θ Lambda:Λ Xi:Ξ Pi:Π ' +
        'Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ hbar:ℏ ell:ℓ Re:ℜ Im:ℑ ' +
        'aleph:ℵ emptyset:∅ varnothing:∅ angle:∠ top:⊤ bot:⊥ prime:′ degree:°',
);
const OPERATORS = table(
    'times:× cdot:⋅ div:÷ pm:± mp:∓ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ otimes:⊗ le:≤ leq:≤ ge:≥ ' +
        'geq:≥ ne:≠ neq:≠ equiv:≡ approx:≈ sim:∼ simeq:≃ cong:≅ propto:∝ ll:≪ gg:≫ in:∈ notin:∉ ni:∋ ' +
        'subset:⊂ supset:⊃ subseteq:⊆ supseteq:⊇ cup:∪ cap:∩ setminus:∖ land:∧ wedge:∧ lor:∨ vee:∨ ' +
        'neg:¬ lnot:¬ forall:∀ exists:∃ to:→ rightarrow:→ leftarrow:← leftrightarrow:↔ ' +
        'Rightarrow:⇒ implies:⟹ Leftarrow:⇐ Leftrightarrow:⇔ iff:⟺ mapsto:↦ longrightarrow:⟶ ' +
        'uparrow:↑ downarrow:↓ mid:∣ parallel:∥ perp:⟂ therefore:∴ because:∵ ldots:… dots:… cdots:⋯ ' +
        'vdots:⋮ ddots:⋱ langle:⟨ rangle:⟩ lfloor:⌊ rfloor:⌋ lceil:⌈ rceil:⌉ vert:| Vert:‖ lvert:| ' +
        'rvert:| lVert:‖ rVert:‖ colon::',
);
const LARGE = table(
    'sum:∑ prod:∏ coprod:∐ int:∫ iint:∬ iiint:∭ oint:∮ bigcup:⋃ bigcap:⋂ bigoplus:⨁ bigotimes:⨂',
);
const FUNCTIONS = new Set(
    (
        'sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh exp log ln lg det dim ker deg gcd ' +
        'arg hom Pr'
    ).split(' '),
);
const LIMITS = new Set('lim max min sup inf limsup liminf argmax argmin'.split(' '));
const ACCENTS = table(
    'hat:^ widehat:^ bar:¯ overline:¯ vec:→ overrightarrow:→ dot:˙ ddot:¨ tilde:~ widetilde:~ ' +
        'check:ˇ overbrace:⏞',
);
const UNDER = table('underline:_ underbrace:⏟');
const SPACES = { ',': 0.17, ':': 0.22, ';': 0.28, '!': -0.17, ' ': 0.25, quad: 1, qquad: 2 };
const FENCES = {
    matrix: ['', ''],
    pmatrix: ['(', ')'],
    bmatrix: ['[', ']'],
    Bmatrix: ['{', '}'],
    vmatrix: ['|', '|'],
    Vmatrix: ['‖', '‖'],
    cases: ['{', ''],
};
// The first letter of each alphabet; those that Unicode put elsewhere are listed.
const ALPHABETS = {
    mathbb: { A: 0x1d538, a: 0x1d552, C: 'ℂ', H: 'ℍ', N: 'ℕ', P: 'ℙ', Q: 'ℚ', R: 'ℝ', Z: 'ℤ' },
    mathbf: { A: 0x1d400, a: 0x1d41a },
    boldsymbol: { A: 0x1d468, a: 0x1d482 },
    mathcal: { A: 0x1d4d0, a: 0x1d4ea },
    mathfrak: { A: 0x1d56c, a: 0x1d586 },
};
const PLAIN_TEXT = new Set('text textrm textbf textit mathrm operatorname mbox'.split(' '));

const TOKEN = /\\([A-Za-z]+|[^])|\s+|[0-9]+(?:\.[0-9]+)?|[^]/gu;

function inAlphabet(name, text) {
    const { A, a, ...others } = ALPHABETS[name];
    return [...text]
        .map((c) => {
            if (others[c]) return others[c];
            if (/[A-Z]/.test(c)) return String.fromCodePoint(A + c.charCodeAt(0) - 65);
            return /[a-z]/.test(c) ? String.fromCodePoint(a + c.charCodeAt(0) - 97) : c;
        })
        .join('');
}

const row = (items) => (items.length === 1 ? items[0] : ['mrow', {}].concat(items));
// A sign after an operator, or at the beginning, belongs to what follows.
const signed = (item, before) => {
    if (item[0] === 'mo' && /^[−+±∓]$/.test(item[2]) && (!before || before[0] === 'mo'))
        item[1].form = 'prefix';
    return item;
};
const fixed = (text) => ['mo', { stretchy: 'false' }, text];

class Reader {
    constructor(text, display) {
        this.tokens = text.match(TOKEN) ?? [];
        this.display = display;
        this.at = 0;
        this.depth = 0;
    }

    peek() {
        while (/^\s/.test(this.tokens[this.at] ?? '')) this.at++;
        return this.tokens[this.at];
    }

    // Items up to one of `ends`, which is left there.
    items(...ends) {
        const found = [];
        for (let token = this.peek(); token !== undefined; token = this.peek()) {
            if (ends.includes(token)) break;
            if (token === '}' && !ends.length) this.at++;
            else found.push(signed(this.scripted(), found.at(-1)));
        }
        return found;
    }

    // An item with what stands above and below it.
    scripted() {
        const base = /^[_^]$/.test(this.peek()) ? ['mrow', {}] : this.item();
        let sub = null,
            sup = null;
        for (let mark = this.peek(); ; mark = this.peek()) {
            if (mark === '_' && !sub) {
                this.at++;
                sub = this.argument();
            } else if (mark === '^' && !sup) {
                this.at++;
                sup = this.argument();
            } else if (mark === "'" && !sup) {
                let primes = '';
                for (; this.peek() === "'"; this.at++) primes += '′';
                sup = ['mo', {}, primes];
            } else break;
        }
        if (!sub && !sup) return base;
        const outside = this.display && base[1].movablelimits === 'true';
        const names = outside ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup'];
        const tag = names[sub && sup ? 2 : sup ? 1 : 0];
        return [tag, {}, base, ...[sub, sup].filter(Boolean)];
    }

    // {…} or a single item
    argument() {
        const token = this.peek();
        if (token === undefined) return ['mrow', {}];
        if (/^\d./.test(token)) {
            this.tokens[this.at] = token.slice(1); // \frac12 is a half
            return ['mn', {}, token[0]];
        }
        return this.item();
    }

    group() {
        const inner = this.items('}');
        this.at++;
        return row(inner.length ? inner : [['mrow', {}]]);
    }

    // The characters of {…}, as they are written.
    rawArgument() {
        if (this.peek() !== '{') return this.tokens[this.at++] ?? '';
        const from = ++this.at;
        let open = 1;
        for (; this.at < this.tokens.length; this.at++) {
            if (this.tokens[this.at] === '{') open++;
            if (this.tokens[this.at] === '}' && --open === 0) break;
        }
        return this.tokens.slice(from, this.at++).join('');
    }

    item() {
        if (this.depth > MAX_DEPTH) return ['mtext', {}, this.tokens[this.at++]];
        this.depth++;
        const found = this.oneItem(this.tokens[this.at++]);
        this.depth--;
        return found;
    }

    oneItem(token) {
        if (token === '{') return this.group();
        if (token[0] === '\\' && token.length > 1) return this.command(token.slice(1));
        if (/^\d/.test(token)) return ['mn', {}, token];
        if (/^\p{L}$/u.test(token)) return ['mi', {}, token];
        return /^[()[\]|/]$/.test(token) ? fixed(token) : ['mo', {}, token === '-' ? '−' : token];
    }

    command(name) {
        if (LETTERS.has(name)) {
            const upright = /^[^a-z]/.test(name) || name === 'infty';
            return ['mi', upright ? { mathvariant: 'normal' } : {}, LETTERS.get(name)];
        }
        if (OPERATORS.has(name)) return fixed(OPERATORS.get(name));
        if (LARGE.has(name)) {
            const limits = name.includes('int') ? 'false' : 'true';
            return ['mo', { movablelimits: limits, largeop: 'true' }, LARGE.get(name)];
        }
        if (LIMITS.has(name)) return ['mo', { movablelimits: 'true', form: 'prefix' }, name];
        if (FUNCTIONS.has(name)) return ['mi', {}, name];
        if (ACCENTS.has(name))
            return ['mover', { accent: 'true' }, this.argument(), ['mo', {}, ACCENTS.get(name)]];
        if (UNDER.has(name)) return ['munder', {}, this.argument(), ['mo', {}, UNDER.get(name)]];
        if (PLAIN_TEXT.has(name)) return ['mtext', {}, this.rawArgument()];
        if (name in ALPHABETS) return ['mi', {}, inAlphabet(name, this.rawArgument())];
        if (name in SPACES) return ['mspace', { width: `${SPACES[name]}em` }];
        return this.structure(name);
    }

    structure(name) {
        switch (name) {
            case 'frac':
            case 'dfrac':
            case 'tfrac':
                return ['mfrac', {}, this.argument(), this.argument()];
            case 'binom':
                return row([
                    fixed('('),
                    ['mfrac', { linethickness: '0' }, this.argument(), this.argument()],
                    fixed(')'),
                ]);
            case 'sqrt':
                return this.root();
            case 'left':
                return this.fenced();
            case 'begin':
                return this.environment();
            case 'boxed':
                return ['mrow', { class: 'boxed' }, this.argument()];
            case 'overset':
            case 'underset': {
                const [script, base] = [this.argument(), this.argument()];
                return [name === 'overset' ? 'mover' : 'munder', {}, base, script];
            }
            case '\\':
                return ['mspace', { linebreak: 'newline' }];
            case '|':
                return fixed('‖');
            case 'displaystyle':
            case 'textstyle':
            case 'limits':
            case 'nolimits':
            case 'big':
            case 'Big':
            case 'bigg':
            case 'Bigg':
            case 'bigl':
            case 'bigr':
            case 'right':
            case 'nonumber':
                return ['mrow', {}];
            default:
                return /^[A-Za-z]/.test(name) ? ['mtext', {}, `\\${name}`] : ['mo', {}, name];
        }
    }

    root() {
        if (this.peek() !== '[') return ['msqrt', {}, this.argument()];
        this.at++;
        const index = row(this.items(']'));
        this.at++;
        return ['mroot', {}, this.argument(), index ?? ['mrow', {}]];
    }

    // One of the fences of \left and \right; . is none.
    fence() {
        const token = this.peek() ?? '.';
        this.at++;
        if (token === '.') return '';
        if (token[0] !== '\\') return token;
        const name = token.slice(1);
        return OPERATORS.get(name) ?? (name === '|' ? '‖' : name);
    }

    fenced() {
        const open = this.fence();
        const inner = this.items('\\right');
        let close = '';
        if (this.peek() === '\\right') {
            this.at++;
            close = this.fence();
        }
        return ['mrow', {}, ['mo', {}, open], row(inner), ['mo', {}, close]];
    }

    environment() {
        const name = this.rawArgument().replace('*', '');
        if (name === 'array') this.rawArgument();
        const rows = [[]];
        for (;;) {
            rows.at(-1).push(['mtd', {}].concat(this.items('&', '\\\\', '\\end')));
            const end = this.peek();
            if (end === undefined) break;
            this.at++;
            if (end === '\\end') {
                this.rawArgument();
                break;
            }
            if (end === '\\\\') rows.push([]);
        }
        if (rows.at(-1).every((cell) => cell.length === 2)) rows.pop();
        const aligned = /^(align|aligned|split|gather|gathered|eqnarray)$/.test(name);
        const lines = rows.map((cells) => ['mtr', {}].concat(cells));
        const kind = aligned ? 'aligned' : name === 'cases' ? 'cases' : null;
        const body = ['mtable', kind ? { class: kind } : {}].concat(lines);
        const [open, close] = FENCES[name] ?? ['', ''];
        if (!open && !close) return body;
        return ['mrow', {}, ['mo', {}, open], body, ...(close ? [['mo', {}, close]] : [])];
    }
}

export function parseMath(text, display) {
    return ['mrow', {}].concat(new Reader(text, display).items());
}
