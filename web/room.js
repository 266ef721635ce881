// How full the context is: the gauge under the composer, and the notice when it is nearly full.
import { NEARLY_FULL } from './context.js';
import { byId, el } from './dom.js';
import { count, percent, plural, shorten } from './format.js';

// fit: as of fitContext, or null; first: the first message. What is left out no longer counts.
export function showRoom(fit, first) {
    byId('room').hidden = !fit;
    byId('context-notice')?.remove();
    if (!fit) return;
    const used = Math.min(fit.tokens, fit.nCtx);
    byId('room-meter').value = used / fit.nCtx;
    byId('room-text').textContent = `${count(used)} of ${count(fit.nCtx)} tokens`;
    if (used / fit.nCtx < NEARLY_FULL && !fit.dropped) return;
    const quoted = `“${shorten(first.content, 40)}”`;
    const said = fit.dropped
        ? `The context is full: the first ${plural(fit.dropped, 'message')}, beginning with ` +
          `${quoted}, will no longer be sent.`
        : `The context is ${percent(used / fit.nCtx)} full. The oldest messages will soon no ` +
          `longer be sent, beginning with ${quoted}.`;
    byId('notice').append(el('div', { class: 'note', id: 'context-notice' }, el('span', {}, said)));
}
