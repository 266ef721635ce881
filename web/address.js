// Each conversation has an address, #ID, so that links, the back button and a reload lead to it;
// and where it was scrolled to is kept for as long as the tab lives.
import { session } from './local.js';

const PLACES = 'fletch-places';

export class Address {
    // open(id): the address has changed to that of a conversation, or of a new chat (null).
    constructor(open) {
        this.shown = undefined;
        this.places = session.getJson(PLACES, {});
        addEventListener('popstate', () => open(this.id()));
    }

    id() {
        return /^#([0-9a-z]+)$/i.exec(location.hash)?.[1] ?? null;
    }

    // A new chat gets its address with its first message; that is no step to go back over.
    show(conversation, isKept) {
        const id = isKept ? conversation.id : null;
        const before = this.shown;
        this.shown = conversation;
        if (id === this.id()) return;
        const address = location.pathname + location.search + (id ? `#${id}` : '');
        if (!before || before === conversation) history.replaceState(null, '', address);
        else history.pushState(null, '', address);
    }

    // null: the end
    keepPlace(id, top) {
        if (top === null) delete this.places[id];
        else this.places[id] = top;
        session.setJson(PLACES, this.places);
    }

    placeOf(id) {
        return this.places[id] ?? null;
    }
}
