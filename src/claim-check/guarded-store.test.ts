import { expect, test } from "vitest";
import { blobMissing, type BlobStore } from "./blob-store.ts";
import { GuardedStore } from "./guarded-store.ts";

const never = new Promise<never>(() => undefined);

async function* some(...pieces: readonly string[]): AsyncGenerator<Uint8Array> {
  for (const piece of pieces) yield Buffer.from(piece);
}

function store(over: Partial<BlobStore>): BlobStore {
  return {
    id: "far",
    put: async () => undefined,
    get: async () => some("a", "b"),
    delete: async () => undefined,
    list: async () => ({ blobs: [], next: undefined }),
    ...over,
  };
}

const unavailable = expect.objectContaining({ code: "CLAIM_STORE_UNAVAILABLE" });

test("a store that never responds times out, and its signal is aborted", async () => {
  let storeSignal: AbortSignal | undefined;
  const guarded = new GuardedStore(
    store({
      get: (_, signal) => {
        storeSignal = signal;
        return never;
      },
    }),
    { timeoutMs: 20, concurrency: 2 },
  );
  await expect(guarded.get("k")).rejects.toEqual(unavailable);
  expect(storeSignal?.aborted).toBe(true);
});

test("a store that stalls in the middle of a read times out", async () => {
  const stalling = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.from("a");
    await never;
  };
  const guarded = new GuardedStore(store({ get: async () => stalling() }), { timeoutMs: 20, concurrency: 2 });
  const seen: string[] = [];
  await expect(async () => {
    for await (const piece of await guarded.get("k")) seen.push(Buffer.from(piece).toString());
  }).rejects.toEqual(unavailable);
  expect(seen).toEqual(["a"]);
});

test("a slow source does not count as a slow store", async () => {
  const slow = async function* (): AsyncGenerator<Uint8Array> {
    for (let n = 0; n < 3; n++) {
      await new Promise((resolve) => setTimeout(resolve, 30));
      yield Buffer.from("x");
    }
  };
  let bytes = 0;
  const guarded = new GuardedStore(
    store({
      put: async (_, pieces) => {
        for await (const piece of pieces) bytes += piece.byteLength;
      },
    }),
    { timeoutMs: 20, concurrency: 2 },
  );
  await guarded.put("k", slow());
  expect(bytes).toBe(3);
});

test("an error of the source is reported as such, even if the store wraps it", async () => {
  const cause = new Error("the client hung up");
  const broken = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.from("x");
    throw cause;
  };
  const wrapping = store({
    put: async (_, pieces) => {
      try {
        for await (const piece of pieces) expect(piece.byteLength).toBe(1);
      } catch {
        throw new Error("upload failed");
      }
    },
  });
  const guarded = new GuardedStore(wrapping, { timeoutMs: 1_000, concurrency: 2 });
  for (let n = 0; n < 8; n++) await expect(guarded.put("k", broken())).rejects.toBe(cause);
  await expect(guarded.put("k", some("a"))).resolves.toBeUndefined();
});

test("after five failures in a row the store is not called any more", async () => {
  let calls = 0;
  const guarded = new GuardedStore(
    store({
      get: async () => {
        calls += 1;
        throw Object.assign(new Error("connect ECONNREFUSED 10.0.0.1"), { code: "ECONNREFUSED" });
      },
    }),
    { timeoutMs: 1_000, concurrency: 2 },
  );
  for (let n = 0; n < 8; n++) await expect(guarded.get("k")).rejects.toEqual(unavailable);
  expect(calls).toBe(5);
});

test("CLAIM_MISSING does not open the breaker", async () => {
  let calls = 0;
  const guarded = new GuardedStore(
    store({
      get: async (key) => {
        calls += 1;
        throw blobMissing(key);
      },
    }),
    { timeoutMs: 1_000, concurrency: 2 },
  );
  for (let n = 0; n < 8; n++) await expect(guarded.get("k")).rejects.toMatchObject({ code: "CLAIM_MISSING" });
  expect(calls).toBe(8);
});

test("concurrency is limited; other calls wait or fail after a timeout", async () => {
  let inside = 0;
  let peak = 0;
  const guarded = new GuardedStore(
    store({
      delete: async () => {
        inside += 1;
        peak = Math.max(peak, inside);
        await new Promise((resolve) => setTimeout(resolve, 5));
        inside -= 1;
      },
    }),
    { timeoutMs: 5_000, concurrency: 2 },
  );
  await Promise.all(Array.from({ length: 6 }, () => guarded.delete(["k"])));
  expect(peak).toBe(2);
  const silent = new GuardedStore(store({ put: () => never }), { timeoutMs: 40, concurrency: 2 });
  const ends = await Promise.allSettled(Array.from({ length: 4 }, () => silent.put("k", some("x"))));
  expect(ends.every((end) => end.status === "rejected" && unavailable.asymmetricMatch(end.reason))).toBe(
    true,
  );
});

test("a reader that stops early closes the store's stream", async () => {
  let ended = false;
  const source = async function* (): AsyncGenerator<Uint8Array> {
    try {
      for (;;) yield Buffer.from("x");
    } finally {
      ended = true;
    }
  };
  const guarded = new GuardedStore(store({ get: async () => source() }), { timeoutMs: 100, concurrency: 1 });
  for await (const piece of await guarded.get("k")) if (piece.byteLength > 0) break;
  await expect.poll(() => ended).toBe(true);
});
