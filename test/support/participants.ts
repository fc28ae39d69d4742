import { Readable } from "node:stream";
import { z } from "zod";
import type { OpenScope } from "../../src/inbox/index.ts";
import {
  command,
  currentMessageContext,
  formatUndoes,
  replyHeader,
  supersedesHeader,
  undoesHeader,
  type Message,
} from "../../src/message/index.ts";
import { consumers } from "./consumers.ts";
import { aMessage } from "./messages.ts";
import { until } from "./relays.ts";

export const Reserve = command("stock.reserve", {
  schema: z.object({ refuse: z.string().optional() }),
  reply: z.object({ place: z.string() }),
});
export const Release = command("stock.release", { schema: z.object({}) });

interface Reply {
  readonly requestId: string;
  readonly key: string | undefined;
  readonly sagaId: string | undefined;
  readonly [field: string]: unknown;
}

interface References {
  readonly undoes?: readonly string[];
  readonly supersedes?: readonly string[];
}

/** A command that asks for a reply, and may refer to earlier reservations. */
export function aCommand(
  contract: { readonly name: string },
  id: string,
  { undoes, supersedes, ...change }: References & Partial<Message> = {},
): Message {
  const headers = {
    [replyHeader]: "replies.shop",
    ...(undoes === undefined ? {} : { [undoesHeader]: formatUndoes(Reserve.name, undoes) }),
    ...(supersedes === undefined ? {} : { [supersedesHeader]: formatUndoes(Reserve.name, supersedes) }),
  };
  const { name: type } = contract;
  return aMessage({ id, type, kind: "command", topic: `commands.${type}`, headers, ...change });
}

/** Consumers whose committed replies are kept for looking at. */
export async function participants(wishes: Parameters<typeof consumers>[0] = {}) {
  const replies: Reply[] = [];
  const openScope: OpenScope = () => {
    const said: Reply[] = [];
    return {
      publish: (_contract, data, options) => {
        const context = currentMessageContext();
        said.push({ ...(data as Reply), key: options?.key, sagaId: context?.sagaId });
        return Promise.resolve({ id: `reply-${said.length}` });
      },
      waitForPending: () => Promise.resolve(),
      lastStatements: () => [],
      open: () => Readable.from([]),
      handleCommit: () => void replies.push(...said),
    };
  };
  const house = await consumers({ ...wishes, openScope });
  return {
    ...house,
    replies,
    replyTo: (id: string) => replies.filter(({ requestId }) => requestId === id),
    /** Publishes to the consumer `stock`, and waits until it has settled everything. */
    settled: async (...messages: Message[]): Promise<void> => {
      await house.publish(...messages);
      await until(() => house.transport.backlog("stock") === 0);
    },
    skips: () => house.observer.of("consumer.skipped").map(({ id, reason }) => `${id} ${reason}`),
    did: async () => (await house.effects()).map(({ id, note }) => `${note} ${id}`),
  };
}
