// Settings: versions, retention, what is switched on, the checks of the doctor. And the page "Your permissions".
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { mdPage, mdTable } from "../markdown.ts";
import { shortcuts, theme, zone } from "../preferences.ts";
import { me, signOut, whyNot } from "../session.ts";
import { useRead } from "../use-read.ts";
import { ActionButton, Failure } from "../parts/action.tsx";
import { Empty, Facts, Loaded, Page, Panel } from "../parts/page.tsx";
import { Status, toneOf } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { Command, Time } from "../parts/text.tsx";
import { hrefTo } from "../router.ts";

export function SettingsPage(): JSX.Element {
  const read = useRead("settings", {});
  const { data } = read;
  return (
    <Page
      title="Settings"
      lead="What runs, and what is switched on. It is changed in the configuration of the services, not here."
      read={read}
      {...(data !== undefined && {
        markdown: () =>
          mdPage(
            "sagabox settings",
            mdTable(["Version", ""], Object.entries(data.versions)),
            mdTable(
              ["Setting", "Value"],
              data.settings.map(({ name, value }) => [name, value]),
            ),
          ),
      })}
    >
      <Panel title="This browser">
        <div class="filters">
          <Choice
            label="Colours"
            value={theme.value}
            values={["system", "light", "dark"]}
            onChange={(value) => (theme.value = value)}
          />
          <Choice
            label="Times"
            value={zone.value}
            values={["local", "utc"]}
            onChange={(value) => (zone.value = value)}
          />
          <Choice
            label="Shortcuts of one key"
            value={shortcuts.value}
            values={["on", "off"]}
            onChange={(value) => (shortcuts.value = value)}
          />
        </div>
      </Panel>
      <Loaded read={read}>
        {(view) => (
          <>
            <Panel title="Versions">
              <Facts
                items={[
                  ["sagabox", view.versions.sagabox],
                  ["Node", view.versions.node],
                  ["PostgreSQL", view.versions.postgres],
                  ["Schema", `${view.schema}, version ${view.versions.schema}`],
                  ["Migration", view.versions.migration],
                ]}
              />
            </Panel>
            <Panel title="Configuration">
              <Table
                label="Configuration"
                rows={view.settings}
                keyOf={({ name }) => name}
                columns={[
                  { title: "Setting", cell: ({ name }) => <strong>{name}</strong> },
                  { title: "Value", cell: ({ value }) => value },
                  { title: "Meaning", isWide: true, cell: ({ help }) => <span class="muted">{help}</span> },
                ]}
              />
            </Panel>
            <Panel title="Roles">
              <Table
                label="Roles"
                rows={view.roles}
                keyOf={({ role }) => role}
                columns={[
                  { title: "Role", cell: ({ role }) => <strong>{role}</strong> },
                  { title: "May", isWide: true, cell: ({ may }) => may },
                ]}
              />
              <p>
                <a href={hrefTo(["permissions"])}>Your permissions</a>
              </p>
            </Panel>
          </>
        )}
      </Loaded>
      <Doctor />
    </Page>
  );
}

function Choice<T extends string>(props: {
  label: string;
  value: T;
  values: readonly T[];
  onChange: (value: T) => void;
}): JSX.Element {
  return (
    <label class="filter">
      <span>{props.label}</span>
      <select
        value={props.value}
        onChange={(event) => {
          const chosen = props.values.find((value) => value === event.currentTarget.value);
          if (chosen !== undefined) props.onChange(chosen);
        }}
      >
        {props.values.map((value) => (
          <option key={value} value={value}>
            {value === "utc" ? "UTC" : value}
          </option>
        ))}
      </select>
    </label>
  );
}

function Doctor(): JSX.Element {
  const [isAsked, setAsked] = useState(false);
  const why = whyNot("doctor");
  const read = useRead("doctor", isAsked && why === null ? {} : null);
  return (
    <Panel title="Doctor">
      <p class="muted">
        Checks the database, the configuration and the workers for known mistakes. It reads only.
      </p>
      {!isAsked && <ActionButton label="Run the checks" why={why} onPress={() => setAsked(true)} />}
      {isAsked && (
        <Loaded read={read}>
          {(view) =>
            view.diagnoses.length === 0 ? (
              <Empty title="The doctor found nothing." />
            ) : (
              <ul class="answers">
                {view.diagnoses.map(({ severity, title, detail, fix }) => (
                  <li key={title}>
                    <p>
                      <Status word={severity} tone={toneOf(severity)} /> <strong>{title}</strong>
                    </p>
                    <p>{detail}</p>
                    {fix !== null && <p class="then">{fix}</p>}
                  </li>
                ))}
              </ul>
            )
          }
        </Loaded>
      )}
      <Command text="sagabox doctor" />
    </Panel>
  );
}

const SIGNED_IN: Readonly<Record<string, string>> = {
  link: "with a one-time link",
  token: "with a token",
  host: "by the application that serves this page",
};

export function PermissionsPage(): JSX.Element {
  const [failure, setFailure] = useState<unknown>();
  const who = me.value;
  if (who === undefined) return <></>;
  return (
    <Page
      title="Your permissions"
      lead="What the server lets you do. It checks every call itself; this page only shows it."
    >
      <Panel
        title="You"
        tools={
          <button
            type="button"
            class="btn"
            onClick={() => void signOut().catch((error: unknown) => setFailure(error))}
          >
            Sign out
          </button>
        }
      >
        <Facts
          items={[
            ["Name in the audit log", who.actor],
            ["Role", who.role],
            ["Signed in", SIGNED_IN[who.signedInBy]],
            ["Until", who.expiresAt === null ? null : <Time at={who.expiresAt} age />],
            ["Keys and error texts", who.isMasked ? "hidden from you" : "shown"],
            ["Schema", who.schema],
          ]}
        />
        {failure !== undefined && <Failure error={failure} />}
      </Panel>
      <Table
        label="Permissions"
        rows={who.permissions}
        keyOf={({ route }) => route}
        columns={[
          { title: "Action", isWide: true, cell: ({ what }) => what },
          { title: "Needs", cell: ({ role }) => role },
          {
            title: "You",
            cell: ({ allowed }) => (
              <Status word={allowed ? "may" : "may not"} tone={allowed ? "ok" : "warn"} />
            ),
          },
          { title: "Why not", isWide: true, cell: ({ why }) => why ?? "–" },
        ]}
      />
    </Page>
  );
}
