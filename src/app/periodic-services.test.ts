import { expect, test } from "vitest";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { ConsumerWatch } from "./periodic-services.ts";

function house() {
  const observer = new RecordingObserver();
  const state: { ok: boolean; detail?: string } = { ok: true };
  const time = { ms: 0 };
  const watch = new ConsumerWatch({
    consumers: [{ name: "books", health: () => state }],
    observer,
    clock: { monotonicMs: () => time.ms, wallMs: () => time.ms },
  });
  const look = (times: number): void => {
    for (let n = 0; n < times; n++) {
      time.ms += 1_000;
      watch.check();
    }
  };
  return { observer, state, look };
}

test("a consumer that gets nothing any more is told of once, with the reason, and so is its return", () => {
  const { observer, state, look } = house();
  look(2);
  Object.assign(state, { ok: false, detail: "the broker does not answer" });
  look(10);
  expect(observer.of("consumer.interrupted")).toEqual([
    { consumer: "books", error: "the broker does not answer" },
  ]);
  state.ok = true;
  look(5);
  expect(observer.of("consumer.resumed")).toEqual([{ consumer: "books", durationMs: 10_000 }]);
});

test("a moment without work, as when members change places, is nothing to tell", () => {
  const { observer, state, look } = house();
  state.ok = false;
  look(2);
  state.ok = true;
  look(1);
  expect([observer.of("consumer.interrupted"), observer.of("consumer.resumed")]).toEqual([[], []]);
});
