// Other tabs of this browser that show the same page: each tells the others which conversation it
// has saved or deleted.
export class Tabs {
    // heard(id): another tab changed that conversation.
    constructor(heard) {
        try {
            this.channel = new BroadcastChannel('fletch');
            this.channel.addEventListener('message', ({ data }) => heard(String(data)));
        } catch {
            this.channel = null; // where site data is blocked
        }
    }

    tell(id) {
        this.channel?.postMessage(id);
    }
}
