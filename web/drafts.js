// What is typed and not yet sent, for each conversation: {text, files}. That of a new chat belongs
// to the tab.
import { local, session } from './local.js';

const NEW = 'new';
const areaOf = (id) => (id === NEW ? session : local);
const keyOf = (id) => `fletch-draft-${id}`;

export const draftId = (chat, conversation = chat.current) =>
    chat.conversations.has(conversation.id) ? conversation.id : NEW;

export const isEmpty = ({ text, files }) => !text.trim() && !files.length;

export const readDraft = (id) => ({
    text: '',
    files: [],
    ...areaOf(id).getJson(keyOf(id), null),
});

export function writeDraft(id, draft) {
    if (isEmpty(draft)) areaOf(id).set(keyOf(id), null);
    else areaOf(id).setJson(keyOf(id), draft);
}
