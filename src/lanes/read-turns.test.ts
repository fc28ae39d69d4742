import { expect, test } from "vitest";
import { ReadTurns } from "./reader.ts";

function anEnd(): { readonly end: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => undefined;
  const end = new Promise<void>((done) => (resolve = done));
  return { end, resolve };
}

/** Starts a read that runs until `end` is called. */
function aRead(turns: ReadTurns, needsAll: () => boolean) {
  const modes: string[] = [];
  const { end, resolve } = anEnd();
  const ended = turns.take(needsAll, async (isAlone) => {
    modes.push(isAlone ? "alone" : "shared");
    await end;
  });
  return {
    modes,
    end: (): Promise<void> => {
      resolve();
      return ended;
    },
  };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const no = (): boolean => false;
const yes = (): boolean => true;

test("reads that only scan lanes run concurrently", async () => {
  const turns = new ReadTurns();
  const [first, second] = [aRead(turns, no), aRead(turns, no)];
  await settled();
  expect([first.modes, second.modes]).toEqual([["shared"], ["shared"]]);
  await Promise.all([first.end(), second.end()]);
});

test("a read of everything begins when no other runs, and no other begins before it has ended", async () => {
  const turns = new ReadTurns();
  const walking = aRead(turns, no);
  const looking = aRead(turns, yes);
  await settled();
  expect(looking.modes).toEqual([]);
  await walking.end();
  const later = aRead(turns, no);
  await settled();
  expect([looking.modes, later.modes]).toEqual([["alone"], []]);
  await looking.end();
  await settled();
  expect(later.modes).toEqual(["shared"]);
  await later.end();
});

test("a waiting read decides whether it needs everything when its turn comes", async () => {
  const turns = new ReadTurns();
  let needsAll = true;
  const walking = aRead(turns, no);
  const other = aRead(turns, () => needsAll);
  await settled();
  needsAll = false;
  await walking.end();
  await settled();
  expect(other.modes).toEqual(["shared"]);
  await other.end();
});

test("a failed read releases its turn and its lanes", async () => {
  const turns = new ReadTurns();
  const failing = turns.take(yes, () => turns.walk([1, 2], 1, () => Promise.reject(new Error("gone"))));
  await expect(failing).rejects.toThrowError("gone");
  const own = await turns.take(yes, () => turns.walk([1, 2], 1, (lanes) => Promise.resolve(lanes)));
  expect(own).toEqual([1, 2]);
});

test("two readers that share lanes alternate in lane order and never scan the same one", async () => {
  const turns = new ReadTurns();
  const { end, resolve } = anEnd();
  const walks: (readonly number[])[] = [];
  const walk = async (own: readonly number[]): Promise<void> => {
    walks.push(own);
    await end;
  };
  const both = [turns.walk([1, 2, 3, 4, 5], 2, walk), turns.walk([1, 2, 3, 4, 5], 1, walk)];
  resolve();
  await Promise.all(both);
  expect(walks).toEqual([
    [1, 3, 5],
    [2, 4],
  ]);
});
