// The service worker: keeps the page's files, so that conversations can be read while the server is
// not running. The network comes first, so that a new version of the page is shown at once; what is
// not a file of the page is none of its concern.
const CACHE = 'fletch';
const FILES = [
    '/',
    '/address.js',
    '/answer.js',
    '/api.js',
    '/app.js',
    '/attachments.js',
    '/chat-view.js',
    '/chat.js',
    '/composer.js',
    '/context.js',
    '/conversation.js',
    '/dialogs.js',
    '/dom.js',
    '/drafts.js',
    '/edit-form.js',
    '/figures.js',
    '/file-view.js',
    '/format.js',
    '/frame.css',
    '/groups.js',
    '/highlight.js',
    '/icon.svg',
    '/inline.js',
    '/keys.js',
    '/live-view.js',
    '/local.js',
    '/manifest.webmanifest',
    '/markdown-view.js',
    '/markdown.js',
    '/math-view.js',
    '/math.js',
    '/menu.js',
    '/merge.js',
    '/message-view.js',
    '/message.css',
    '/model-picker.js',
    '/offline.js',
    '/panel.js',
    '/panels.css',
    '/plot.js',
    '/presets.js',
    '/prompt-view.js',
    '/request.js',
    '/room.js',
    '/sampling.js',
    '/settings-view.js',
    '/sidebar.js',
    '/sse.js',
    '/starters.js',
    '/store.js',
    '/style.css',
    '/tabs.js',
    '/theme.js',
    '/token-view.js',
    '/tree.js',
];

self.addEventListener('install', (event) => {
    const requests = FILES.map((path) => new Request(path, { cache: 'reload' }));
    event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(requests)));
    self.skipWaiting();
});

self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

async function fromNetwork(request) {
    const cache = await caches.open(CACHE);
    try {
        const response = await fetch(request);
        if (response.ok) await cache.put(request, response.clone());
        return response;
    } catch {
        return (await cache.match(request, { ignoreSearch: true })) ?? Response.error();
    }
}

self.addEventListener('fetch', (event) => {
    const { pathname, origin } = new URL(event.request.url);
    const isOurs = origin === self.location.origin && FILES.includes(pathname);
    if (isOurs && event.request.method === 'GET') event.respondWith(fromNetwork(event.request));
});
