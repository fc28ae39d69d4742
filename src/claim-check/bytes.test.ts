import { EventEmitter, once } from "node:events";
import { Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { expect, test } from "vitest";
import { catchStreamErrors } from "./bytes.ts";

async function all(source: ReturnType<typeof catchStreamErrors>): Promise<string> {
  return (await buffer(source as AsyncIterable<Uint8Array>)).toString();
}

test("a stream that fails before it is read fails its reader, not the process", async () => {
  const source = new Readable({ read: () => undefined });
  const guarded = catchStreamErrors(source);
  const closed = new Promise<void>((resolve) => source.once("close", resolve));
  source.destroy(new Error("unplugged"));
  await closed;
  await expect(all(guarded)).rejects.toThrow("unplugged");
});

test("a legacy stream that forgets its error is not read as empty", async () => {
  const forgetful = Object.assign(new EventEmitter(), { async *[Symbol.asyncIterator]() {} });
  const guarded = catchStreamErrors(forgetful);
  forgetful.emit("error", new Error("unplugged"));
  await expect(all(guarded)).rejects.toThrow("unplugged");
});

test("a stream that was read keeps no additional listeners", async () => {
  const [plain, source] = [Readable.from([Buffer.from("abc")]), Readable.from([Buffer.from("abc")])];
  expect(await all(plain)).toBe("abc");
  expect(await all(catchStreamErrors(source))).toBe("abc");
  if (!source.closed) await once(source, "close");
  expect(source.listenerCount("error")).toBe(plain.listenerCount("error"));
});

test("a source that is not a Node stream is returned unchanged", () => {
  const bytes = new Uint8Array(3);
  expect(catchStreamErrors(bytes)).toBe(bytes);
  const generator = (async function* () {})();
  expect(catchStreamErrors(generator)).toBe(generator);
});
