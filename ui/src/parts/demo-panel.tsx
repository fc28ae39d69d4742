// The demo panel: breaks a part of the demo and repairs it. Shown only if the server offers it.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call } from "../api.ts";
import { demo } from "../live.ts";
import { ActionButton, Failure } from "./action.tsx";
import { announce } from "./announce.tsx";
import { Panel } from "./page.tsx";
import { Status } from "./status.tsx";

export function DemoPanel(): JSX.Element | null {
  const [failure, setFailure] = useState<unknown>();
  const [running, setRunning] = useState<string>();
  useEffect(() => {
    call("demo.show", {}).then(
      (view) => {
        demo.value = view;
      },
      (error: unknown) => setFailure(error),
    );
  }, []);
  const view = demo.value;
  if (view === undefined) return failure === undefined ? null : <Failure error={failure} />;

  const act = async (action: string, title: string): Promise<void> => {
    setRunning(action);
    setFailure(undefined);
    try {
      demo.value = await call("demo.act", { body: { action } });
      announce(`Done: ${title}`);
    } catch (error) {
      setFailure(error);
    } finally {
      setRunning(undefined);
    }
  };

  return (
    <Panel title="Demo: break something" class="demo" id="demo">
      <p class="muted">
        {view.hint ?? "Break a part of the shop, watch what sagabox does about it, then repair it."}
      </p>
      <ul class="demo-actions">
        {view.actions.map(({ name, title, help, active, allowed, why }) => (
          <li key={name}>
            <ActionButton
              label={running === name ? "Waiting…" : title}
              why={allowed ? (running === undefined ? null : "Another action runs.") : why}
              onPress={() => void act(name, title)}
            />
            {active && <Status word="active" tone="warn" />}
            <p class="muted small">{help}</p>
          </li>
        ))}
      </ul>
      {failure !== undefined && <Failure error={failure} />}
    </Panel>
  );
}
