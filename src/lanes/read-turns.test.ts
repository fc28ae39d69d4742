import { expect, test } from "vitest";
import { ReadTurns } from "./reader.ts";

function anEnd(): { readonly end: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => undefined;
  const end = new Promise<void>((told) => (resolve = told));
  return { end, resolve };
}

/** A read that ends when it is told to. */
function aRead(turns: ReadTurns, needsAll: () => boolean) {
  const told: string[] = [];
  const { end, resolve } = anEnd();
  const ended = turns.take(needsAll, async (isAlone) => {
    told.push(isAlone ? "alone" : "beside");
    await end;
  });
  return {
    told,
    end: (): Promise<void> => {
      resolve();
      return ended;
    },
  };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const no = (): boolean => false;
const yes = (): boolean => true;

test("reads that only walk lanes run beside each other", async () => {
  const turns = new ReadTurns();
  const [first, second] = [aRead(turns, no), aRead(turns, no)];
  await settled();
  expect([first.told, second.told]).toEqual([["beside"], ["beside"]]);
  await Promise.all([first.end(), second.end()]);
});

test("a read that looks at everything begins when no other runs, and nobody begins before it has ended", async () => {
  const turns = new ReadTurns();
  const walking = aRead(turns, no);
  const looking = aRead(turns, yes);
  await settled();
  expect(looking.told).toEqual([]);
  await walking.end();
  const later = aRead(turns, no);
  await settled();
  expect([looking.told, later.told]).toEqual([["alone"], []]);
  await looking.end();
  await settled();
  expect(later.told).toEqual(["beside"]);
  await later.end();
});

test("a read that waited decides when its turn comes: what it needed may be done", async () => {
  const turns = new ReadTurns();
  let needsAll = true;
  const walking = aRead(turns, no);
  const other = aRead(turns, () => needsAll);
  await settled();
  needsAll = false;
  await walking.end();
  await settled();
  expect(other.told).toEqual(["beside"]);
  await other.end();
});

test("a read that fails gives its turn and its lanes back", async () => {
  const turns = new ReadTurns();
  const failing = turns.take(yes, () => turns.walk([1, 2], 1, () => Promise.reject(new Error("gone"))));
  await expect(failing).rejects.toThrowError("gone");
  const own = await turns.take(yes, () => turns.walk([1, 2], 1, (lanes) => Promise.resolve(lanes)));
  expect(own).toEqual([1, 2]);
});

test("two who share lanes take turns in their order, and never walk the same one", async () => {
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
