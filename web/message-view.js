// One message: its text, what the model thought, which tools it called, and what can be done with
// it.
import { copyText, el, icon, iconButton } from './dom.js';
import { progressNodes, statsNode } from './figures.js';
import { plural } from './format.js';
import { codeBlock, MarkdownView } from './markdown-view.js';
import { TokenView } from './token-view.js';

const NAMES = { user: 'You', assistant: 'Answer', tool: 'Result of a tool' };
const ENDINGS = {
    length: 'The answer reached its longest length.',
    stopped: 'Stopped.',
    edited: 'Edited by you.',
    context: 'The context is full.',
    timeout: 'The time was up.',
};

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
        this.text = el('div', { class: node.role === 'assistant' ? 'text prose' : 'text plain' });
        this.markdown = new MarkdownView(this.text);
        this.calls = el('div', { class: 'tool-calls' });
        this.state = el('div', { class: 'state' });
        this.foot = el('footer');
        this.element = el(
            'article',
            { class: `message ${node.role}`, 'aria-label': NAMES[node.role], 'data-id': node.id },
            node.role === 'assistant'
                ? [this.folded, this.text, this.calls, this.state]
                : this.text,
            this.foot,
        );
    }

    // run: the request that writes this message now, or undefined
    update(run, isLast) {
        const { node } = this;
        if (node.role === 'assistant') this.showAnswer(run, isLast);
        else this.text.textContent = node.content;
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
        if (node.error) {
            return [
                el(
                    'p',
                    { class: 'error', role: 'alert' },
                    node.error,
                    ' ',
                    el(
                        'button',
                        { type: 'button', onclick: () => this.actions.regenerate(node) },
                        'Try again',
                    ),
                ),
            ];
        }
        return ENDINGS[node.finish] ? [el('p', { class: 'quiet' }, ENDINGS[node.finish])] : [];
    }

    buttons(isLast) {
        const { node, actions } = this;
        const copy = iconButton('copy', 'Copy message', () => copyText(node.content, copy));
        const all = [this.branchSwitch(), copy, iconButton('edit', 'Edit', () => this.edit())];
        if (node.role === 'assistant') {
            const curl = iconButton('terminal', 'Copy as curl command', () =>
                copyText(actions.curl(node), curl),
            );
            this.tokenButton = iconButton(
                'tokens',
                'Token probabilities',
                () => this.toggleTokens(),
                { 'aria-pressed': 'false' },
            );
            all.push(
                iconButton('again', 'Answer again', () => actions.regenerate(node)),
                isLast &&
                    node.content &&
                    iconButton('forward', 'Continue this answer', () =>
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
        const area = el('textarea', {
            'aria-label': 'Edit message',
            rows: String(Math.min(16, node.content.split('\n').length + 1)),
        });
        const close = () => {
            form.replaceWith(this.text);
            this.foot.hidden = false;
        };
        const form = el(
            'form',
            {
                class: 'edit-form',
                onsubmit: (event) => {
                    event.preventDefault();
                    close();
                    if (area.value.trim() && area.value !== node.content)
                        actions.edit(node, area.value);
                },
            },
            area,
            el(
                'div',
                { class: 'actions' },
                el(
                    'button',
                    { type: 'submit', class: 'primary' },
                    node.role === 'user' ? 'Send as new branch' : 'Keep as new branch',
                ),
                el('button', { type: 'button', onclick: close }, 'Cancel'),
            ),
        );
        area.value = node.content;
        area.addEventListener('keydown', (event) => {
            if (event.key === 'Escape') {
                event.preventDefault();
                close();
            }
            if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
        });
        this.hideTokens();
        this.text.replaceWith(form);
        this.foot.hidden = true;
        area.focus();
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
