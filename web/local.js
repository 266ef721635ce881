// Small values that outlive the page (localStorage), or the tab (sessionStorage). Where the browser
// blocks site data they are kept in memory, so that nothing else has to care.

class Area {
    // open(): the browser's storage; reading the property alone throws where site data is blocked.
    constructor(open) {
        this.open = open;
        this.memory = new Map();
    }

    get(key) {
        if (this.memory.has(key)) return this.memory.get(key);
        try {
            return this.open().getItem(key);
        } catch {
            return null;
        }
    }

    // null removes it
    set(key, value) {
        this.memory.delete(key);
        try {
            if (value === null) this.open().removeItem(key);
            else this.open().setItem(key, value);
        } catch {
            this.memory.set(key, value); // blocked or full
        }
    }

    // The value that was set as JSON, or `otherwise`.
    getJson(key, otherwise) {
        try {
            return JSON.parse(this.get(key)) ?? otherwise;
        } catch {
            return otherwise;
        }
    }

    setJson(key, value) {
        this.set(key, JSON.stringify(value));
    }
}

export const local = new Area(() => localStorage);
export const session = new Area(() => sessionStorage);
