// What people expect of a page to chat with: nothing is lost, everyone can read it, and what other
// pages have taught them works.
//   node habits_test.js BINARY SCREENSHOTS
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import {
    answers,
    ask,
    assertAccessible,
    assertNoSideScroll,
    becomes,
    canned,
    delta,
    finished,
    kept,
    openBrowser,
    serve,
    shot,
    start,
    stopServers,
    visit,
} from './harness.js';

const TIMEOUT = { timeout: 240_000 }; // ms for one test
let url, browser, folder;

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'page-'));
    [url, browser] = await Promise.all([serve(), openBrowser()]);
});

after(async () => {
    await browser?.close();
    stopServers();
    rmSync(folder, { recursive: true });
});

// A test with a visitor of its own.
const onPage = (name, use, options) =>
    test(name, TIMEOUT, async () => {
        const { page, close } = await visit(browser, url, options);
        await use(page);
        await close();
    });

const button = (page, name) => page.getByRole('button', { name, exact: true });
const items = (page) => page.locator('#conversations li');
const titles = (page) => items(page).locator('.name').allInnerTexts();
const input = (page) => page.getByLabel('Your message');
const questions = (page) => page.locator('.message.user .text').allInnerTexts();
const style = (locator, property) =>
    locator.evaluate((e, p) => getComputedStyle(e).getPropertyValue(p), property);
const act = async (page, title, action) => {
    await items(page).filter({ hasText: title }).first().hover();
    await button(page, `Actions for ${title}`).click();
    await page.getByRole('menuitem', { name: action, exact: true }).click();
};

// Answers "Yes." at once.
const quick = (page) => canned(page, delta({ content: 'Yes.' }), delta({}, 'stop'));

// Answers wait until the test lets them go.
async function held(page) {
    let release;
    const gate = new Promise((resolve) => {
        release = resolve;
    });
    await page.route('**/v1/chat/completions', async (route) => {
        await gate;
        const chunks = [delta({ content: 'Yes.' }), delta({}, 'stop')];
        const body = chunks.map((c) => `data: ${JSON.stringify(c)}\n\n`).join('');
        await route
            .fulfill({ contentType: 'text/event-stream', body: `${body}data: [DONE]\n\n` })
            .catch(() => {}); // its page has gone
    });
    return release;
}

// ---- nothing is lost ----

onPage(
    'a message is saved before it is sent; a reload leads back, the answer is cut',
    async (page) => {
        const release = await held(page);
        await input(page).fill('Keep this');
        await page.keyboard.press('Enter');
        await becomes(() => kept(page), ['Keep this']);
        const address = page.url();
        assert.match(address, /#[0-9a-f]+$/);
        await page.reload();
        await becomes(() => questions(page), ['Keep this']);
        await page.getByText('This answer is being written in another tab.').waitFor();
        // Nobody has written it for long.
        await page.addInitScript(() => {
            const { now } = Date;
            Date.now = () => now() + 60_000;
        });
        await page.reload();
        await page.getByText('The answer was cut off').waitFor();
        assert.equal(page.url(), address);
        release();
        await button(page, 'Try again').click();
        await becomes(() => answers(page).locator('.text').innerText(), 'Yes.');
        assert.equal(await page.locator('.branches').count(), 0);
    },
);

onPage(
    'each conversation has an address: back, forward, and one that is not here',
    async (page) => {
        await quick(page);
        await ask(page, 'First');
        const first = page.url();
        await button(page, 'New chat').first().click();
        await becomes(() => page.url(), `${url}/`);
        await ask(page, 'Second');
        const second = page.url();
        assert.notEqual(first, second);
        await page.goBack();
        await becomes(() => questions(page), ['First']);
        await page.goForward();
        await becomes(() => questions(page), ['Second']);
        // Drafts stay with their conversation, over a reload too.
        await input(page).fill('Draft of the second');
        await page.goBack();
        await becomes(() => input(page).inputValue(), '');
        await input(page).fill('Draft of the first');
        await page.reload();
        await becomes(() => questions(page), ['First']);
        await becomes(() => input(page).inputValue(), 'Draft of the first');
        await page.goto(second);
        await becomes(() => input(page).inputValue(), 'Draft of the second');
        await page.goto(`${url}/#abc123`);
        await page
            .getByText('This browser has no conversation with this address.')
            .waitFor();
        await becomes(() => titles(page).then((all) => all.sort()), ['First', 'Second']);
    },
);

onPage('two tabs on one conversation lose nothing', async (page) => {
    await quick(page);
    await ask(page, 'First');
    const other = await page.context().newPage();
    await quick(other);
    await other.goto(page.url());
    await becomes(() => questions(other), ['First']);
    await ask(other, 'From the other tab');
    await becomes(() => questions(page), ['First', 'From the other tab']);
    // Both write at the same time: beside each other as branches, or one after the other.
    await Promise.all([ask(page, 'Left'), ask(other, 'Right')]);
    const contents = () =>
        page.evaluate(async () => {
            const { loadConversations } = await import('/store.js');
            const [{ nodes }] = await loadConversations();
            return [...nodes.values()]
                .filter((n) => n.role === 'user')
                .map((n) => n.content)
                .sort();
        });
    await becomes(contents, ['First', 'From the other tab', 'Left', 'Right']);
    await page.reload();
    await becomes(async () => (await questions(page)).length >= 3, true);
    // What can't be read for a while is not gone.
    await page.evaluate(() => {
        const { get } = IDBObjectStore.prototype;
        IDBObjectStore.prototype.get = () => {
            window.readsFailed = true;
            IDBObjectStore.prototype.get = get;
            throw new DOMException('not now', 'InvalidStateError');
        };
    });
    await act(other, 'First', 'Pin');
    await page.waitForFunction(() => window.readsFailed);
    await becomes(() => titles(page), ['First']);
    await act(other, 'First', 'Delete');
    await button(other, 'Delete').click();
    await becomes(() => titles(page), []);
});

test('a server that dies in the middle, and comes back with another model', TIMEOUT, async () => {
    const first = await start('0', '--alias', 'first', '-c', '16384');
    const { page, close } = await visit(browser, first.url);
    await page.getByText('first', { exact: true }).waitFor();
    await button(page, 'Settings').click();
    // An answer that takes a minute, however fast the server is.
    await page.getByLabel('Maximum answer length').fill('12000');
    await page.getByLabel('Answer format').selectOption('schema');
    const endless = { type: 'array', items: { type: 'integer' }, minItems: 9000 };
    await page.getByLabel('JSON schema').fill(JSON.stringify(endless));
    await page.getByLabel('Record token probabilities').uncheck();
    await button(page, 'Settings').click();
    await input(page).fill('Tell me a story.');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.assistant .text')?.textContent);
    await first.kill();
    await page
        .getByRole('alert')
        .getByText(
            'The server stopped in the middle of the answer. Is “fletch serve” still running?',
        )
        .waitFor();
    await page.getByText('Not connected').waitFor();
    await button(page, 'Try again').click();
    await page
        .getByRole('alert')
        .getByText('The server can’t be reached. Is “fletch serve” still running?')
        .waitFor();
    await start(first.port, '--alias', 'second');
    await page.getByText('The server no longer has first. The current model is second.').waitFor();
    await button(page, 'Settings').click();
    await page.getByLabel('Answer format').selectOption('Text');
    await page.getByLabel('Maximum answer length').fill('8');
    await button(page, 'Settings').click();
    await page.getByLabel('Maximum answer length').waitFor({ state: 'hidden' });
    await button(page, 'Try again').click();
    await finished(page);
    await becomes(
        () => answers(page).locator('.stats summary').innerText(),
        /^second · [\d,]+ tokens/,
    );
    assert.equal(await page.locator('.branches').count(), 0);
    // Restarted once more while nobody looks: a lone model answers, whatever name it is given.
    await page.route('**/v1/status', async (route) => {
        const status = await (await route.fetch()).json();
        status.models[0].model = 'third';
        await route.fulfill({ json: status });
    });
    await canned(page, { ...delta({ content: 'Yes.' }), model: 'third' }, delta({}, 'stop'));
    await ask(page, 'Are you still there?');
    await page.getByText('The server no longer has second. The current model is third.').waitFor();
    await close();
});

test('with site data blocked the page works in memory, and says so', TIMEOUT, async () => {
    const { page, close } = await visit(browser, url);
    await page.addInitScript(() => {
        const blocked = () => {
            throw new DOMException('The operation is insecure.', 'SecurityError');
        };
        for (const name of ['localStorage', 'sessionStorage', 'indexedDB'])
            Object.defineProperty(window, name, { get: blocked });
        window.BroadcastChannel = blocked;
    });
    await page.reload();
    await page.getByText('This browser blocks site data').waitFor();
    await quick(page);
    await ask(page, 'In memory');
    await button(page, 'Theme: same as the system').click();
    await button(page, 'New chat').first().click();
    await items(page).first().getByRole('button').first().click();
    await becomes(() => questions(page), ['In memory']);
    await close();
});

onPage('a conversation that can’t be saved goes on, which is said once', async (page) => {
    await quick(page);
    await ask(page, 'First');
    await page.evaluate(() => {
        IDBObjectStore.prototype.put = () => {
            throw new DOMException('the disk is full', 'QuotaExceededError');
        };
    });
    await ask(page, 'Second');
    await ask(page, 'Third');
    await becomes(
        () => page.locator('#notice .note').allInnerTexts(),
        [
            'This conversation could not be saved: the disk is full. It is kept in this tab; ' +
                '“Export all” saves it as a file.',
        ],
    );
    assert.deepEqual(await questions(page), ['First', 'Second', 'Third']);
    const [file] = await Promise.all([
        page.waitForEvent('download'),
        button(page, 'Export all').click(),
    ]);
    const path = join(folder, 'unsaved.json');
    await file.saveAs(path);
    assert.match(readFileSync(path, 'utf8'), /"Third"/);
});

onPage('import says what it added, and makes no twins', async (page) => {
    await quick(page);
    await ask(page, 'Here');
    const [file] = await Promise.all([
        page.waitForEvent('download'),
        button(page, 'Export all').click(),
    ]);
    const path = join(folder, 'all.json');
    await file.saveAs(path);
    const all = JSON.parse(readFileSync(path, 'utf8'));
    const [own] = all.conversations;
    const say = async (conversations, said) => {
        writeFileSync(path, JSON.stringify({ ...all, conversations }));
        await page.getByLabel('File to import').setInputFiles(path);
        await page.getByText(said).waitFor();
        await button(page, 'Dismiss').last().click();
    };
    await say([own], 'all.json: 0 conversations added, 1 already here.');
    const more = { id: 'm', role: 'user', content: 'More', parent: own.messages.at(-1).id };
    const old = { ...own, id: 'old', changed: Date.UTC(2020, 4, 17), messages: [own.messages[0]] };
    await say(
        [{ ...own, messages: [...own.messages, more] }, old],
        'all.json: 1 conversation added, 1 extended with new messages.',
    );
    await becomes(() => questions(page), ['Here', 'More']);
    // Groups by day, a search with what it found, pins.
    await becomes(() => page.locator('.group').allInnerTexts(), ['Today', 'May 2020']);
    await page.getByLabel('Search conversations').fill('more');
    await becomes(() => page.locator('.snippet mark').allInnerTexts(), ['More']);
    await page.getByLabel('Search conversations').fill('');
    await items(page).nth(1).hover();
    await items(page)
        .nth(1)
        .getByRole('button', { name: /^Actions/ })
        .click();
    await shot(page, 'menu');
    await page.getByRole('menuitem', { name: 'Pin' }).click();
    await becomes(() => page.locator('.group').allInnerTexts(), ['Pinned', 'Today']);
    await page.reload();
    await becomes(() => page.locator('.group').allInnerTexts(), ['Pinned', 'Today']);
});

// ---- writing ----

onPage('Enter while an answer is being written queues the message', async (page) => {
    const release = await held(page);
    await input(page).fill('One');
    await page.keyboard.press('Enter');
    await button(page, 'Stop').waitFor();
    await input(page).fill('Two');
    await page.keyboard.press('Enter');
    await page.getByText('This message will be sent when the answer is complete.').waitFor();
    await shot(page, 'queued');
    await button(page, 'Don’t send').click();
    await page.locator('#queued').waitFor({ state: 'hidden' });
    await input(page).press('Enter');
    release();
    await becomes(() => questions(page), ['One', 'Two']);
    await finished(page);
    await becomes(() => input(page).inputValue(), '');
    // The edit box takes the keys as the composer does; the title follows.
    await page.locator('.message.user').first().getByRole('button', { name: 'Edit' }).click();
    const edit = page.getByLabel('Edit message');
    await edit.fill('Edited');
    await edit.press('Shift+Enter');
    await edit.pressSequentially('twice');
    await edit.press('Enter');
    await finished(page);
    await becomes(() => questions(page), ['Edited\ntwice']);
    await becomes(() => titles(page), ['Edited']);
    await becomes(() => page.title(), 'Edited · fletch');
});

const CODE = Array.from({ length: 80 }, (_, i) => `const x${i} = "text"; // ${i}`).join('\n');

onPage('code is coloured, its copy button stays in view; formulas are MathML', async (page) => {
    const text = `# A\n\n### B\n\nSo $x^2$:\n\n$$\\frac{a}{b}$$\n\n\`\`\`js\n${CODE}\n\`\`\`\n`;
    await canned(page, delta({ content: text }), delta({}, 'stop'));
    await ask(page, 'Show me');
    const answer = answers(page);
    assert.equal(await answer.locator('.code-keyword').count(), 80);
    assert.notEqual(
        await style(answer.locator('.code-keyword').first(), 'color'),
        await style(answer.locator('pre').first(), 'color'),
    );
    await becomes(() => answer.locator('math mfrac').count(), 1);
    const frac = await answer.locator('mfrac').boundingBox();
    assert.ok(frac.height > 20, `${frac.height}`); // one above the other
    await shot(page, 'code-and-math');
    await assertAccessible(page, 'code and math'); // headings in order, too
    await page.locator('#log').evaluate((log) => {
        const pre = log.querySelector('pre');
        log.scrollTop += pre.getBoundingClientRect().top + pre.clientHeight / 2 - 400;
    });
    const copy = answer.getByRole('button', { name: 'Copy code' });
    await becomes(async () => {
        const { y } = await copy.boundingBox();
        const log = await page.locator('#log').boundingBox();
        return y >= log.y - 1 && y < log.y + 60;
    }, true);
    // On paper: the conversation alone, whole.
    await page.emulateMedia({ media: 'print' });
    for (const gone of ['#sidebar', '#composer', '#tools'])
        assert.equal(await page.locator(gone).isVisible(), false, gone);
    const clipped = await page
        .locator('#log')
        .evaluate((log) => log.scrollHeight - log.clientHeight);
    assert.ok(clipped <= 1, `${clipped} pixels are cut off`);
    assert.ok(await page.evaluate(() => document.documentElement.scrollHeight > innerHeight));
    await page.emulateMedia({ media: 'screen' });
});

onPage(
    'text files are attached by button, drop and paste; long questions are folded',
    async (page) => {
        await quick(page);
        const file = join(folder, 'notes.txt');
        writeFileSync(file, 'from the button\n');
        await page.getByLabel('Text files to attach').setInputFiles(file);
        const attached = (n) => becomes(() => page.locator('#attached li').count(), n);
        await attached(1);
        const binary = join(folder, 'binary.dat');
        writeFileSync(binary, Buffer.from([0xff, 0xfe, 0, 1]));
        await page.getByLabel('Text files to attach').setInputFiles(binary);
        await page
            .getByText('binary.dat is not a text file, and only text can be attached.')
            .waitFor();
        const transfer = (name, content) =>
            page.evaluateHandle(
                ([n, c]) => {
                    const data = new DataTransfer();
                    if (n) data.items.add(new File([c], n));
                    else data.setData('text/plain', c);
                    return data;
                },
                [name, content],
            );
        await page.locator('main').dispatchEvent('drop', {
            dataTransfer: await transfer('drop.md', 'from a drop'),
        });
        await attached(2);
        const long = 'a pasted line\n'.repeat(100);
        await input(page).evaluate(
            (box, clipboardData) =>
                box.dispatchEvent(
                    new ClipboardEvent('paste', { clipboardData, cancelable: true, bubbles: true }),
                ),
            await transfer('', long),
        );
        await becomes(
            () =>
                page
                    .locator('#attached li')
                    .allInnerTexts()
                    .then((a) => a.map((t) => t.split('\n')[0])),
            ['notes.txt', 'drop.md', 'Pasted text'],
        );
        await shot(page, 'attached');
        await input(page).fill('What is this?');
        const [request] = await Promise.all([
            page.waitForRequest('**/v1/chat/completions'),
            input(page).press('Enter'),
        ]);
        const { content } = request.postDataJSON().messages[0];
        assert.match(
            content,
            /^notes\.txt:\n```\nfrom the button\n```\n\ndrop\.md:\n```\nfrom a drop/,
        );
        assert.ok(content.endsWith('a pasted line\n```\n\nWhat is this?'), content.slice(-60));
        await finished(page);
        await becomes(() => page.locator('.message.user details.file').count(), 3);
        assert.equal(await page.locator('.message.user details[open]').count(), 0);
        await becomes(() => page.locator('#attached li').count(), 0);
        await ask(page, 'A long question.\n'.repeat(60));
        const text = page.locator('.message.user .text').last();
        const height = async () => (await text.boundingBox()).height;
        assert.ok((await height()) < 300);
        await button(page, 'Show all 60 lines').click();
        await becomes(async () => (await height()) > 1000, true);
        await assertAccessible(page, 'files');
    },
);

onPage(
    'settings: defaults in force, presets, and a Reset that keeps the system prompt',
    async (page) => {
        await quick(page);
        await button(page, 'Add a system prompt').click();
        assert.equal(
            await page.evaluate(() => document.activeElement.getAttribute('name')),
            'system',
        );
        await page.keyboard.type('Be brief.');
        await becomes(
            () => page.locator('#system summary').innerText(),
            'System prompt: Be brief.',
        );
        const defaults = (await (await fetch(`${url}/v1/status`)).json()).models[0].sampling;
        await becomes(
            () => page.getByLabel('Temperature').getAttribute('placeholder'),
            String(+defaults.temperature.toFixed(4)),
        );
        await page.getByLabel('Preset', { exact: true }).selectOption('Precise');
        await becomes(() => page.getByLabel('Temperature').inputValue(), '0');
        await becomes(() => page.getByLabel('System prompt').inputValue(), 'Be brief.');
        await button(page, 'Save as preset').click();
        await page.getByLabel('Name of the preset').fill('Mine');
        await page.keyboard.press('Enter');
        await button(page, 'Reset').click();
        await page.getByText('The system prompt was kept.').waitFor();
        await becomes(() => page.getByLabel('Temperature').inputValue(), '');
        await becomes(() => page.getByLabel('System prompt').inputValue(), 'Be brief.');
        await page.getByLabel('Preset', { exact: true }).selectOption('Mine');
        await becomes(() => page.getByLabel('Temperature').inputValue(), '0');
        await button(page, 'Delete preset').click();
        await becomes(() => page.locator('#set-preset option[value=Mine]').count(), 0);
        // At temperature 0 another answer would be the same.
        await ask(page, 'Hello');
        await button(page, 'Answer again').click();
        await page.getByText('At temperature 0 the model always picks').waitFor();
        await assertAccessible(page, 'the same answer');
        const [request] = await Promise.all([
            page.waitForRequest('**/v1/chat/completions'),
            button(page, 'Answer at temperature 0.8').click(),
        ]);
        assert.equal(request.postDataJSON().temperature, 0.8);
        await page.getByLabel('Branch 2 of 2').waitFor();
        await becomes(() => page.getByLabel('Temperature').inputValue(), '0');
        // Enter on the question whether to delete deletes nothing.
        await act(page, 'Hello', 'Delete');
        await becomes(() => page.evaluate(() => document.activeElement.textContent), 'Cancel');
        await page.keyboard.press('Enter');
        await becomes(() => titles(page), ['Hello']);
        // Shortcuts.
        await page.locator('#log').focus();
        await page.keyboard.press('?');
        await page.getByText('Keyboard shortcuts').waitFor();
        await shot(page, 'shortcuts');
        await page.keyboard.press('Escape');
        await page.getByText('Keyboard shortcuts').waitFor({ state: 'hidden' });
        await page.keyboard.press('Control+Shift+O');
        await becomes(() => questions(page), []);
        await page.keyboard.press('?');
        await becomes(() => input(page).inputValue(), '?'); // where one writes it is a character
    },
);

// ---- everyone can read it ----

onPage(
    'right-to-left text, large fonts, forced colours',
    async (page) => {
        const hebrew = 'שלום עולם';
        await canned(page, delta({ content: `${hebrew}\n\n- ${hebrew}` }), delta({}, 'stop'));
        await input(page).fill(hebrew);
        assert.equal(await style(input(page), 'direction'), 'rtl');
        await ask(page, hebrew);
        for (const part of [
            '.user .text',
            '.assistant p[dir]',
            '.assistant li',
            '#title button',
            '#conversations .name',
        ])
            assert.equal(await style(page.locator(part).first(), 'direction'), 'rtl', part);
        await button(page, 'New chat').first().click();
        await ask(page, 'Left to right');
        assert.equal(await style(page.locator('.user .text').first(), 'direction'), 'ltr');
        const outline = (i) => style(items(page).nth(i), 'outline-style');
        assert.deepEqual([await outline(0), await outline(1)], ['solid', 'none']);
        await shot(page, 'forced-colours');
        await page.setViewportSize({ width: 360, height: 740 });
        const size = async () => parseFloat(await style(input(page), 'font-size'));
        const before = await size();
        await page.evaluate(() => {
            document.documentElement.style.fontSize = '200%';
        });
        assert.equal(await size(), 2 * before);
        await assertNoSideScroll(page, 'twice the font size');
        const cut = () => input(page).evaluate((box) => box.scrollHeight - box.clientHeight);
        await becomes(async () => (await cut()) <= 1, true); // the composer grew with it
        await input(page).fill('some words');
        await page.setViewportSize({ width: 800, height: 740 });
        await becomes(async () => (await input(page).boundingBox()).height < 100, true);
        await page.setViewportSize({ width: 360, height: 740 });
        await becomes(async () => (await cut()) <= 1, true);
        await input(page).fill('');
        const room = await input(page).evaluate((box) => {
            const { font, paddingLeft, paddingRight } = getComputedStyle(box);
            const pen = document.createElement('canvas').getContext('2d');
            pen.font = font;
            const padding = parseFloat(paddingLeft) + parseFloat(paddingRight);
            return box.clientWidth - padding - pen.measureText(box.placeholder).width;
        });
        assert.ok(room >= 0, `${room} pixels are left beside the whole placeholder`);
        await shot(page, 'large-font');
    },
    { forcedColors: 'active' },
);

onPage(
    'a phone: new chat, new line, title, the model’s name and labels',
    async (page) => {
        await quick(page);
        await input(page).fill('One');
        await input(page).press('Enter');
        await becomes(() => input(page).inputValue(), 'One\n');
        await input(page).pressSequentially('two');
        await button(page, 'Send').click();
        await finished(page);
        await becomes(() => questions(page), ['One\ntwo']);
        for (const part of ['#title', '#model'])
            await becomes(() => page.locator(part).isVisible(), true);
        await becomes(() => page.locator('#model').innerText(), 'guide');
        await button(page, 'More').click();
        await shot(page, 'phone-menu');
        await becomes(
            () => page.getByRole('menuitem').allInnerTexts(),
            ['Settings', 'Prompt', 'Server', 'Theme: same as the system', 'Keyboard shortcuts'],
        );
        await page.keyboard.press('Escape');
        await page.locator('main > header').getByRole('button', { name: 'New chat' }).click();
        await becomes(() => questions(page), []);
        await assertAccessible(page, 'phone');
    },
    { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true },
);

test('installable: a manifest, and the page without its server', TIMEOUT, async () => {
    const own = await start('0');
    const { page, close } = await visit(browser, own.url, { serviceWorkers: 'allow' });
    const manifest = await (await fetch(`${own.url}/manifest.webmanifest`)).json();
    assert.deepEqual([manifest.name, manifest.display], ['fletch', 'standalone']);
    assert.equal(await page.locator('link[rel=manifest]').count(), 1);
    await page.evaluate(() => navigator.serviceWorker.ready);
    const csp = (await fetch(own.url)).headers.get('content-security-policy');
    assert.match(csp, /default-src 'none'; script-src 'self';/);
    assert.doesNotMatch(csp, /unsafe|\*/);
    await ask(page, 'Hello!');
    await own.kill();
    await page.reload();
    await becomes(() => questions(page), ['Hello!']);
    await page.getByText('Not connected').waitFor();
    await close();
});

// ---- how it looks ----

const WIDTHS = [360, 768, 1280, 1920];
for (const colorScheme of ['light', 'dark'])
    onPage(
        `from 360 to 1,920 pixels, ${colorScheme}`,
        async (page) => {
            const text =
                'Use `-n`:\n\n```sh\nfletch run -n 8 # short\n```\n\nThen $e^{i\\pi} = -1$.';
            for (const width of WIDTHS) {
                await page.setViewportSize({ width, height: 800 });
                await assertNoSideScroll(page, `welcome, ${width}`);
                await shot(page, `welcome-${width}-${colorScheme}`);
            }
            await canned(page, delta({ content: text }), delta({}, 'stop'));
            await ask(page, 'How do I shorten answers?');
            // Labels stand beside icons where there is room.
            const label = page.locator('#tools .label').first();
            assert.equal(await label.isVisible(), true);
            for (const width of WIDTHS) {
                await page.setViewportSize({ width, height: 800 });
                await assertNoSideScroll(page, `conversation, ${width}`);
                await shot(page, `conversation-${width}-${colorScheme}`);
            }
            await assertAccessible(page, `1,920, ${colorScheme}`);
            await page.setViewportSize({ width: 768, height: 800 });
            assert.equal(await label.isVisible(), false);
        },
        { colorScheme, viewport: { width: 1280, height: 800 } },
    );
