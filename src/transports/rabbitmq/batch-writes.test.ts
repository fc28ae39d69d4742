import { Writable } from "node:stream";
import { expect, test } from "vitest";
import { batchWrites } from "./link.ts";

class Recorder extends Writable {
  readonly pieces: string[][] = [];

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.pieces.push([chunk.toString()]);
    done();
  }

  override _writev(chunks: { readonly chunk: Buffer }[], done: () => void): void {
    this.pieces.push(chunks.map(({ chunk }) => chunk.toString()));
    done();
  }
}

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("writes of one turn of the event loop are flushed together and in order", async () => {
  const socket = new Recorder();
  batchWrites(socket);
  for (const text of ["a", "b", "c"]) socket.write(text);
  expect(socket.pieces).toEqual([]);
  await nextTurn();
  for (const text of ["d", "e"]) socket.write(text);
  await nextTurn();
  expect(socket.pieces).toEqual([
    ["a", "b", "c"],
    ["d", "e"],
  ]);
});

test("a full socket returns false from write and emits drain", async () => {
  const socket = new Recorder({ highWaterMark: 2 });
  batchWrites(socket);
  const drained = new Promise((resolve) => socket.once("drain", resolve));
  expect([socket.write("a"), socket.write("b")]).toEqual([true, false]);
  await drained;
  expect(socket.pieces).toEqual([["a", "b"]]);
});

test("pending writes are flushed when the socket ends and discarded when it is destroyed", async () => {
  const ended = new Recorder();
  batchWrites(ended);
  ended.write("last");
  await new Promise<void>((resolve) => ended.end(resolve));
  expect(ended.pieces).toEqual([["last"]]);
  const gone = new Recorder();
  batchWrites(gone);
  gone.write("lost");
  gone.destroy();
  await nextTurn();
  expect(gone.pieces).toEqual([]);
});
