// One message: its text, what the model thought, which tools it called, and what can be done with
// it.
import { countLines } from './attachments.js';
import { copyText, el, icon, iconButton, labelledButton } from './dom.js';
import { EditForm } from './edit-form.js';
import { progressNodes, statsNode } from './figures.js';
import { foldedFile } from './file-view.js';
import { plural } from './format.js';
import { codeBlock, MarkdownView } from './markdown-view.js';
import { TokenView } from './token-view.js';

const NAMES = { user: 'You', assistant: 'Answer', tool: 'Tool result' };
const ENDINGS = {
    length: 'The answer reached its maximum length.',
    stopped: 'Stopped.',
    edited: 'Edited by you.',
    context: 'The context is full.',
    timeout: 'The server’s time limit for an answer was reached.',
};
const CUT = 'The answer was cut off: the page was closed before it was complete.';
const ELSEWHERE = 'This answer is being written in another tab.';
const ALIVE = 5000; // ms; a tab that writes an answer says so at least this often

const LONG = { lines: 24, characters: 2000 }; // of a question; longer ones are folded
const isLong = (text) => text.length > LONG.characters || countLines(text) > LONG.lines;

function toolForm(node, actions) {
    const inputs = node.toolCalls.map((call, i) =>
        el('textarea', {
            rows: '2',
            required: true,
            'aria-label': `Result of call ${i + 1}, ${call.name}`,
        }),
    );
    return el(
        'form',
        {
            class: 'tool-form',
            onsubmit: (event) => {
                event.preventDefault();
                actions.answerTools(
                    node,
                    inputs.map((input) => input.value),
                );
            },
        },
        inputs,
        el(
            'button',
            { type: 'submit', class: 'primary' },
            inputs.length > 1 ? 'Send results' : 'Send result',
        ),
    );
}

// Arguments as the model wrote them, laid out when they are JSON.
function pretty(json) {
    try {
        return JSON.stringify(JSON.parse(json), null, 2);
    } catch {
        return json;
    }
}

export class MessageView {
    // actions: what the buttons do (see app.js); branch: {index, ids}
    constructor(node, branch, actions) {
        this.node = node;
        this.branch = branch;
        this.actions = actions;
        this.tokenView = null;
        this.reasoning = el('div', { class: 'prose' });
        this.reasoningView = new MarkdownView(this.reasoning);
        this.reasoningTitle = el('summary');
        this.folded = el(
            'details',
            { class: 'reasoning', hidden: true },
            this.reasoningTitle,
            this.reasoning,
        );
        this.text = el('div', {
            class: node.role === 'assistant' ? 'text prose' : 'text plain',
            dir: 'auto',
        });
        this.unfold = el('button', { type: 'button', class: 'unfold', hidden: true });
        this.unfold.addEventListener('click', () => this.fold(!this.isFolded()));
        this.files = el('div', { class: 'files' }, (node.files ?? []).map(foldedFile));
        this.markdown = new MarkdownView(this.text);
        this.calls = el('div', { class: 'tool-calls' });
        this.state = el('div', { class: 'state' });
        this.foot = el('footer');
        this.element = el(
            'article',
            { class: `message ${node.role}`, 'aria-label': NAMES[node.role], 'data-id': node.id },
            el('h2', { class: 'sr' }, NAMES[node.role]),
            node.role === 'assistant'
                ? [this.folded, this.text, this.calls, this.state]
                : [this.files, this.text, this.unfold],
            this.foot,
        );
    }

    isFolded() {
        return this.text.classList.contains('long');
    }

    fold(on) {
        this.text.classList.toggle('long', on);
        this.unfold.setAttribute('aria-expanded', String(!on));
        this.unfold.textContent = on
            ? `Show all ${plural(countLines(this.node.content), 'line')}`
            : 'Show less';
    }

    showText() {
        const { content } = this.node;
        if (this.text.textContent === content) return;
        this.text.textContent = content;
        this.text.hidden = !content;
        this.unfold.hidden = !isLong(content);
        if (isLong(content)) this.fold(true);
    }

    // run: the request that writes this message now, or undefined
    update(run, isLast) {
        const { node } = this;
        if (node.role === 'assistant') this.showAnswer(run, isLast);
        else this.showText();
        this.element.setAttribute('aria-busy', String(Boolean(run)));
        this.foot.hidden = Boolean(run);
        // While text streams in, the buttons stay as they are.
        if (!run || !this.foot.hasChildNodes()) this.foot.replaceChildren(...this.buttons(isLast));
    }

    showAnswer(run, isLast) {
        const { node } = this;
        this.folded.hidden = !node.reasoning;
        if (node.reasoning) {
            this.reasoningView.show(node.reasoning);
            const thinking = run && !node.content && !node.toolCalls.length;
            this.reasoningTitle.textContent = thinking
                ? 'Thinking …'
                : `Thoughts, ${plural(node.reasoning.trim().split(/\s+/).length, 'word')}`;
        }
        if (run) this.hideTokens();
        this.markdown.show(node.content);
        this.calls.replaceChildren(
            ...node.toolCalls.map((call) =>
                el(
                    'section',
                    { 'aria-label': `Tool call, ${call.name}` },
                    el(
                        'p',
                        { class: 'tool-name' },
                        icon('tool'),
                        'Calls ',
                        el('strong', {}, call.name),
                    ),
                    codeBlock(pretty(call.arguments), 'arguments'),
                ),
            ),
        );
        if (node.toolCalls.length && !run && isLast)
            this.calls.append(toolForm(node, this.actions));
        this.state.replaceChildren(...this.stateNodes(run));
    }

    stateNodes(run) {
        const { node } = this;
        if (run) {
            return [
                el(
                    'p',
                    { class: 'working' },
                    el('span', { class: 'busy' }),
                    el('span', {}, progressNodes(run.progress, performance.now()).filter(Boolean)),
                ),
            ];
        }
        if (node.error) return [this.failure(node.error)];
        if (!node.finish) return [this.unfinished()];
        return ENDINGS[node.finish] ? [el('p', { class: 'quiet' }, ENDINGS[node.finish])] : [];
    }

    failure(text) {
        const again = () => this.actions.regenerate(this.node);
        return el(
            'p',
            { class: 'error', role: 'alert' },
            text,
            ' ',
            el('button', { type: 'button', onclick: again }, 'Try again'),
        );
    }

    // An answer that has not ended and that this tab is not writing.
    unfinished() {
        const silent = Date.now() - (this.node.changed ?? 0);
        if (silent > ALIVE) return this.failure(CUT);
        setTimeout(() => this.state.replaceChildren(...this.stateNodes()), ALIVE - silent + 100);
        return el('p', { class: 'quiet' }, ELSEWHERE);
    }

    buttons(isLast) {
        const { node, actions } = this;
        const copy = labelledButton('copy', 'Copy', 'Copy message', () =>
            copyText(node.content, copy),
        );
        const edit = labelledButton('edit', 'Edit', 'Edit', () => this.edit());
        const all = [this.branchSwitch(), copy, edit];
        if (node.role === 'assistant') {
            const curl = labelledButton('terminal', 'curl', 'Copy as curl command', () =>
                copyText(actions.curl(node), curl),
            );
            this.tokenButton = labelledButton(
                'tokens',
                'Probabilities',
                'Token probabilities',
                () => this.toggleTokens(),
                { 'aria-pressed': 'false' },
            );
            all.push(
                labelledButton('again', 'Again', 'Answer again', () => actions.again(node)),
                isLast &&
                    node.content &&
                    labelledButton('forward', 'Continue', 'Continue this answer', () =>
                        actions.continueAnswer(node),
                    ),
                this.tokenButton,
                curl,
                statsNode(node.stats),
            );
        }
        return all.filter(Boolean);
    }

    branchSwitch() {
        const { ids, index } = this.branch;
        if (ids.length < 2) return null;
        const step = (by) => () => this.actions.switchTo(this.node, by);
        return el(
            'span',
            { class: 'branches', role: 'group', 'aria-label': 'Branches' },
            iconButton('left', 'Previous branch', step(-1), { disabled: index === 0 }),
            el(
                'span',
                { 'aria-label': `Branch ${index + 1} of ${ids.length}`, role: 'img' },
                `${index + 1}/${ids.length}`,
            ),
            iconButton('right', 'Next branch', step(1), { disabled: index === ids.length - 1 }),
        );
    }

    edit() {
        const { node, actions } = this;
        const form = new EditForm(
            node.content,
            node.role === 'user' ? 'Send as new branch' : 'Keep as new branch',
            (text) => {
                form.element.replaceWith(this.text);
                this.foot.hidden = false;
                this.unfold.hidden = node.role === 'assistant' || !isLong(node.content);
                if (text !== null) actions.edit(node, text);
            },
        );
        this.hideTokens();
        this.text.replaceWith(form.element);
        this.unfold.hidden = true;
        this.foot.hidden = true;
        form.focus();
    }

    hideTokens() {
        this.tokenView?.element.replaceWith(this.text);
        this.tokenView = null;
        this.tokenButton?.setAttribute('aria-pressed', 'false');
    }

    async toggleTokens() {
        if (this.tokenView) {
            this.hideTokens();
            return;
        }
        const tokens = await this.actions.tokens(this.node);
        this.tokenView = new TokenView(tokens, (index, alternative) =>
            this.actions.continueFrom(this.node, index, alternative),
        );
        this.text.replaceWith(this.tokenView.element);
        this.tokenButton.setAttribute('aria-pressed', 'true');
    }
}
