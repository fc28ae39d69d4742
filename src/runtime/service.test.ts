import { expect, test, vi } from "vitest";
import { Supervisor } from "./service.ts";

function recorder() {
  const events: string[] = [];
  const service = (name: string, stop: () => Promise<void> = () => Promise.resolve()) => ({
    name,
    service: {
      start: async () => void events.push(`start ${name}`),
      stop: async () => {
        events.push(`stop ${name}`);
        await stop();
      },
    },
  });
  return { events, service };
}

test("services start in order and stop in reverse", async () => {
  const { events, service } = recorder();
  const supervisor = new Supervisor({ services: [service("a"), service("b"), service("c")] });
  await supervisor.start();
  await supervisor.stop();
  expect(events).toEqual(["start a", "start b", "start c", "stop c", "stop b", "stop a"]);
});

test("services with stopsFirst stop together, then the others in reverse order", async () => {
  const { events, service } = recorder();
  let ended = (): void => undefined;
  const busy = {
    ...service("busy", () => new Promise<void>((resolve) => (ended = resolve))),
    stopsFirst: true,
  };
  const idle = { ...service("idle"), stopsFirst: true };
  const supervisor = new Supervisor({ services: [service("relay"), idle, busy, service("server")] });
  await supervisor.start();
  const stopping = supervisor.stop();
  await expect.poll(() => events.slice(4)).toEqual(["stop busy", "stop idle"]);
  ended();
  await stopping;
  expect(events.slice(6)).toEqual(["stop server", "stop relay"]);
});

test("a failing start stops the started services, including the failed one, and rethrows the error", async () => {
  const { events, service } = recorder();
  const broken = service("b");
  const supervisor = new Supervisor({
    services: [
      service("a"),
      { ...broken, service: { ...broken.service, start: () => Promise.reject(new Error("port taken")) } },
      service("c"),
    ],
  });
  await expect(supervisor.start()).rejects.toThrow("port taken");
  expect(events).toEqual(["start a", "stop b", "stop a"]);
});

test("a failing stop does not keep the other services from being stopped", async () => {
  const { events, service } = recorder();
  const trouble = vi.fn();
  const failure = new Error("stuck");
  const supervisor = new Supervisor({
    services: [service("a"), service("b", () => Promise.reject(failure))],
    onStopTrouble: trouble,
  });
  await supervisor.start();
  await supervisor.stop();
  expect(events.slice(-2)).toEqual(["stop b", "stop a"]);
  expect(trouble).toHaveBeenCalledExactlyOnceWith("b", failure);
});

test("a service that does not stop is abandoned at the deadline, and the others are still stopped", async () => {
  const { events, service } = recorder();
  const trouble = vi.fn();
  const supervisor = new Supervisor({
    services: [service("a"), service("b", () => new Promise(() => undefined))],
    stopDeadlineMs: 20,
    onStopTrouble: trouble,
  });
  await supervisor.start();
  await supervisor.stop();
  expect(trouble).toHaveBeenCalledWith("b", undefined);
  expect(events.at(-1)).toBe("stop a");
});

test("starting twice, stopping twice and stopping before the start are harmless", async () => {
  const { events, service } = recorder();
  const supervisor = new Supervisor({ services: [service("a")] });
  await supervisor.stop();
  await Promise.all([supervisor.start(), supervisor.start()]);
  await Promise.all([supervisor.stop(), supervisor.stop()]);
  await supervisor.stop();
  expect(events).toEqual(["start a", "stop a"]);
});

test("a stop during the start waits for it, and the supervisor can be started again", async () => {
  const { events, service } = recorder();
  const supervisor = new Supervisor({ services: [service("a"), service("b")] });
  await Promise.all([supervisor.start(), supervisor.stop()]);
  expect(events).toEqual(["start a", "start b", "stop b", "stop a"]);
  await supervisor.start();
  expect(events.slice(-2)).toEqual(["start a", "start b"]);
});
