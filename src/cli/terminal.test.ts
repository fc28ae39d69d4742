import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import { parseCommand, UsageError, type Command, type Io, type Terminal } from "./command.ts";
import { confirmAction, yesOption } from "./confirm.ts";
import { startProgress } from "./terminal.ts";
import { printOrWatch, watchOption } from "./watch.ts";

function ioWith(terminal?: Terminal): Io & { readonly printed: string[]; readonly told: string[] } {
  const [printed, told]: [string[], string[]] = [[], []];
  return {
    env: {},
    cwd: ".",
    signals: new EventEmitter(),
    out: (text) => void printed.push(text),
    err: (text) => void told.push(text),
    setEnv: () => undefined,
    exit: () => undefined,
    ...(terminal === undefined ? {} : { terminal }),
    printed,
    told,
  };
}

const command: Command = {
  name: "look",
  summary: "",
  usage: [],
  details: "",
  options: { watch: watchOption, yes: yesOption, json: { type: "boolean", help: "" } },
  run: () => Promise.resolve(0),
};
const input = (...args: string[]) => parseCommand(command, args);

test("a number behind --watch is its value, and anything else leaves it standing alone", () => {
  expect(input("--watch", "5").values["watch"]).toBe("5");
  expect(input("--watch").values["watch"]).toBe("2");
  expect(input("--watch", "--json").values).toMatchObject({ watch: "2", json: true });
  expect(input("list", "--watch", "orders").positionals).toEqual(["list", "orders"]);
});

test("without --watch there is one look, and its exit code counts", async () => {
  const io = ioWith();
  expect(await printOrWatch(input(), io, () => Promise.resolve({ text: "seen", code: 3 }))).toBe(3);
  expect(io.printed).toEqual(["seen"]);
});

test("with --watch it looks until Ctrl-C, on a cleared screen only where there is one", async () => {
  for (const out of [true, false]) {
    const io = ioWith({ out });
    let looks = 0;
    const look = () => {
      looks += 1;
      if (looks === 3) (io.signals as EventEmitter).emit("SIGINT");
      return Promise.resolve({ text: `look ${looks}`, code: 0 });
    };
    expect(await printOrWatch(input("--watch", "0.1"), io, look)).toBe(0);
    expect(io.printed).toHaveLength(3);
    expect(io.printed[2]?.startsWith("\u001b[H")).toBe(out);
  }
});

test("--watch refuses what is no sensible number of seconds", async () => {
  const look = () => Promise.resolve({ text: "", code: 0 });
  await expect(printOrWatch(input("--watch", "0"), ioWith(), look)).rejects.toThrow(UsageError);
});

test("nothing that needs a confirmation is done without one", async () => {
  const what = "2 messages go.";
  await expect(confirmAction(input(), ioWith(), { what })).rejects.toThrow(/add --yes/);
  expect(await confirmAction(input("--yes"), ioWith(), { what })).toBe(true);
  await expect(confirmAction(input(), ioWith(), { what, matters: false })).rejects.toThrow(/add --yes/);
  const silent = ioWith({ out: true, ask: () => Promise.reject(new Error("asked")) });
  expect(await confirmAction(input(), silent, { what, matters: false })).toBe(true);
  const answers = ["shop", "nope", undefined];
  const io = ioWith({ out: true, ask: () => Promise.resolve(answers.shift()) });
  expect(await confirmAction(input(), io, { what, word: "shop" })).toBe(true);
  expect(await confirmAction(input(), io, { what, word: "shop" })).toBe(false);
  expect(await confirmAction(input(), io, { what, word: "shop" })).toBe(false);
  expect(io.told).toEqual(["Nothing was done.", "Nothing was done."]);
});

test("progress is a bar on a screen, and a line now and then elsewhere", () => {
  let nowMs = 0;
  const clock = { wallMs: () => nowMs, monotonicMs: () => nowMs };
  const drawn: (string | null)[] = [];
  const onScreen = startProgress(ioWith({ out: true, draw: (line) => void drawn.push(line) }), "sent", clock);
  const piped = ioWith();
  const inLines = startProgress(piped, "sent", clock);
  for (const [ms, done] of [
    [0, 0],
    [50, 1],
    [2_000, 20],
    [6_000, 60],
  ] as const) {
    nowMs = ms;
    onScreen.update(done, 120);
    inLines.update(done, 120);
  }
  onScreen.end();
  inLines.end();
  expect(drawn).toHaveLength(4);
  expect(drawn[2]).toBe("████████████░░░░░░░░░░░░  sent  60 of 120  10/s, 6 s left");
  expect(drawn[3]).toBeNull();
  expect(piped.told).toEqual(["sent  60 of 120  10/s, 6 s left"]);
});
