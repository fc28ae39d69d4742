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

test("what is written in one turn goes out in one piece, in order, and the next turn's in another", async () => {
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

test("a socket that is full says so, and tells when it has room again", async () => {
  const socket = new Recorder({ highWaterMark: 2 });
  batchWrites(socket);
  const drained = new Promise((resolve) => socket.once("drain", resolve));
  expect([socket.write("a"), socket.write("b")]).toEqual([true, false]);
  await drained;
  expect(socket.pieces).toEqual([["a", "b"]]);
});

test("what was written before the end still goes out, and a destroyed socket takes nothing and hurts nobody", async () => {
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
