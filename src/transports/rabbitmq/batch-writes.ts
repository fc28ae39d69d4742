import type { Writable } from "node:stream";

/** For the socket: so much may wait in it to go out together, some hundred messages of usual size. */
export const largeWriteBuffer = { writableHighWaterMark: 262_144 } as const;

/**
 * The client writes each message to the socket by itself, a system call for each, and the broker wakes up for each.
 * What is written in one turn of the event loop goes out in one piece instead, and no later than that turn.
 */
export function batchWrites(socket: Writable): void {
  const write = socket.write.bind(socket) as (...given: unknown[]) => boolean;
  let gathering = false;
  const end = (): void => {
    gathering = false;
    socket.uncork();
  };
  socket.write = (...given: unknown[]): boolean => {
    if (!gathering) {
      gathering = true;
      socket.cork();
      process.nextTick(end);
    }
    return write(...given);
  };
}
