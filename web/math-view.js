// Shows a formula as MathML, which browsers lay out themselves; copying it gives what was written.
import { el, mathml } from './dom.js';
import { parseMath } from './math.js';

const element = (node) =>
    typeof node === 'string' ? node : mathml(node[0], node[1], node.slice(2).map(element));

export function mathNode(text, display) {
    const formula = mathml(
        'math',
        { display: display ? 'block' : 'inline', 'aria-label': text },
        element(parseMath(text, display)),
    );
    return display
        ? el(
              'div',
              { class: 'math', tabindex: '0', role: 'region', 'aria-label': 'Formula' },
              formula,
          )
        : formula;
}
