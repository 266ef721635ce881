// Starts `fletch serve` and a browser, and opens the page as a test wants it. Whatever goes wrong
// in the page (an exception, a refused resource, a request to elsewhere) fails the test.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import axe from 'axe-core';
import { chromium } from 'playwright-core';

const FLAGS = [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
];
const [, , BINARY, SHOTS] = process.argv;
const WAIT = 60_000; // ms; a machine may be busy with other tests

// Asks again and again until `read` gives what is wanted, a value or a pattern; gives it back, or
// fails with what was there instead. Whatever a page or a server does takes its time, so nothing
// about them is checked only once.
export async function becomes(read, want) {
    const check = want instanceof RegExp ? assert.match : assert.deepEqual;
    for (const end = Date.now() + WAIT; ;) {
        const got = await read();
        try {
            check(got, want);
            return got;
        } catch (error) {
            if (Date.now() > end) throw error;
        }
        await new Promise((resolve) => {
            setTimeout(resolve, 20);
        });
    }
}

mkdirSync(SHOTS, { recursive: true });
const children = [];

// A server on a free port; resolves when it answers.
export const serve = async (...args) => (await start('0', ...args)).url;

// The same on a given port, and as something that can be killed.
export async function start(port, ...args) {
    const child = spawn(BINARY, ['serve', '--port', port, '--threads', '1', '--cache-disk', '0', ...args], {
        stdio: ['ignore', 'ignore', 'pipe'],
    });
    children.push(child);
    const ended = new Promise((resolve) => {
        child.once('exit', resolve);
    });
    const url = await new Promise((resolve, reject) => {
        let said = '';
        child.stderr.on('data', (data) => {
            said += data;
            const found = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
            if (found) resolve(found[0]);
        });
        ended.then((code) => reject(new Error(`fletch serve ended with ${code}: ${said}`)));
    });
    await becomes(async () => (await fetch(`${url}/readyz`)).ok, true);
    const kill = async () => {
        child.kill('SIGKILL');
        await ended;
    };
    return { url, port: new URL(url).port, kill };
}

export const stopServers = () => children.forEach((child) => child.kill('SIGKILL'));

export const openBrowser = () =>
    chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS });

// One visitor: a fresh profile with one tab. options: as of Playwright's newContext. New chats
// begin with short answers, which are enough for most tests.
export async function visit(browser, url, options = {}) {
    const context = await browser.newContext({
        viewport: { width: 1280, height: 800 },
        permissions: ['clipboard-read', 'clipboard-write'],
        serviceWorkers: 'block', // or else routes of a test would not see all requests
        ...options,
    });
    context.setDefaultTimeout(WAIT);
    await context.addInitScript(
        (settings) => {
            try {
                localStorage['fletch-settings'] ??= settings;
            } catch {
                /* a test blocks site data */
            }
        },
        JSON.stringify({ max_tokens: 48 }),
    );
    const page = await context.newPage();
    const wrong = [];
    page.on('pageerror', (error) => wrong.push(error.stack));
    page.on('console', (message) => {
        // A refused request is the test's own doing; the page says what it has to say about it.
        if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
            wrong.push(message.text());
    });
    page.on('request', (request) => {
        if (!request.url().startsWith(url) && !request.url().startsWith('blob:'))
            wrong.push(`asked for ${request.url()}`);
    });
    await page.goto(url);
    return {
        page,
        context,
        close: async () => {
            await context.close();
            assert.deepEqual(wrong, []);
        },
    };
}

export const answers = (page) => page.locator('.message.assistant');

export async function finished(page) {
    await page.waitForFunction(() => {
        const all = document.querySelectorAll('.message.assistant');
        return all.length && [...all].every((m) => m.getAttribute('aria-busy') === 'false');
    });
}

// Asks and waits for the whole answer; resolves to its text.
export async function ask(page, text) {
    await page.getByLabel('Your message').fill(text);
    await page.keyboard.press('Enter');
    await page.locator('.message.user', { hasText: text }).last().waitFor();
    await finished(page);
    return answers(page).last().locator('.text').innerText();
}

// Titles of the conversations on disk, by the page's own reader.
export const kept = (page) =>
    page.evaluate(async () => {
        const { loadConversations } = await import('/store.js');
        const { titleOf } = await import('/conversation.js');
        return (await loadConversations()).map(titleOf).sort();
    });

// From the next load on, an answer stands still after its first text until the page shows it: it is
// seen to grow, and can be stopped, however fast the server and however slow the page is.
export async function paced(page) {
    await page.addInitScript(() => {
        const real = window.fetch;
        const shown = async () => {
            while (!document.querySelector('.message.assistant:last-child .text')?.textContent)
                await new Promise((resolve) => {
                    setTimeout(resolve, 5);
                });
        };
        window.fetch = async (path, init) => {
            const response = await real(path, init);
            if (!String(path).endsWith('/completions')) return response;
            const events = new TransformStream({
                async transform(text, to) {
                    for (const event of text.split(/(?<=\n\n)/)) {
                        to.enqueue(event);
                        if (/"content":"[^"]*\w/.test(event)) await shown();
                        init.signal.throwIfAborted(); // as a real answer breaks off
                    }
                },
            });
            const body = response.body
                .pipeThrough(new TextDecoderStream())
                .pipeThrough(events)
                .pipeThrough(new TextEncoderStream());
            return new Response(body, response);
        };
    });
    await page.reload();
}

// When what moves has come to rest.
export const still = (page) =>
    page.evaluate(() =>
        Promise.allSettled(
            document
                .getAnimations()
                .filter((a) => a.effect.getComputedTiming().endTime !== Infinity)
                .map((a) => a.finished),
        ),
    );

export async function shot(page, name) {
    await still(page);
    await page.screenshot({ path: join(SHOTS, `${name}.png`) });
}

// The next answers of the page come from here instead of the server.
export async function canned(page, ...chunks) {
    const body = `${chunks.map((c) => `data: ${JSON.stringify(c)}\n\n`).join('')}data: [DONE]\n\n`;
    await page.route('**/v1/chat/completions', (route) =>
        route.fulfill({ contentType: 'text/event-stream', body }),
    );
}

export const delta = (change, finish = null) => ({
    choices: [{ index: 0, delta: change, finish_reason: finish }],
});

// How many pixels the page, and the messages, are too wide.
export const assertNoSideScroll = (page, where) =>
    becomes(
        () =>
            page.evaluate((at) => {
                const excess = (e) => Math.max(0, e.scrollWidth - e.clientWidth);
                return {
                    at,
                    page: excess(document.documentElement),
                    messages: excess(document.getElementById('log')),
                };
            }, where),
        { at: where, page: 0, messages: 0 },
    );

// axe-core finds nothing at all.
export async function assertAccessible(page, where) {
    await still(page);
    await page.evaluate(axe.source);
    const found = await page.evaluate(async () =>
        (await axe.run(document)).violations.map(
            (v) =>
                `${v.id}: ${v.help}: ${v.nodes
                    .map((n) => `${n.target} ${n.any[0]?.message ?? ''}`)
                    .slice(0, 3)
                    .join('; ')}`,
        ),
    );
    assert.deepEqual(found, [], where);
}
