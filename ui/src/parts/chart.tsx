// A chart with a table beside it. Its height is fixed, so that new points never move the page.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { nowMs } from "../clock.ts";
import { formatNumber, formatTime } from "../format.ts";
import { theme, zone } from "../preferences.ts";

export interface Line {
  readonly label: string;
  readonly values: readonly (number | null)[];
  /** Which colour and dash of the design: 1, 2 or 3. Lines differ by both. */
  readonly style: 1 | 2 | 3;
  readonly isBad?: boolean;
}

interface ChartProps {
  readonly title: string;
  readonly unit: string;
  readonly at: readonly number[];
  readonly lines: readonly Line[];
}

const HEIGHT = 150;
const DASHES: Readonly<Record<1 | 2 | 3, number[]>> = { 1: [], 2: [6, 4], 3: [2, 3] };
const dark = window.matchMedia("(prefers-color-scheme: dark)");

export function Chart({ title, unit, at, lines }: ChartProps): JSX.Element {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const data = [at, ...lines.map(({ values }) => values)] as unknown as uPlot.AlignedData;
  const shape = JSON.stringify([theme.value, zone.value, lines.map(({ label, style }) => [label, style])]);

  useEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const draw = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(lines, element, zone.peek()), data, element);
    };
    draw();
    const resized = new ResizeObserver(() =>
      plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    resized.observe(element);
    dark.addEventListener("change", draw);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = undefined;
    };
    // Drawn anew when the lines or the colours change; new points are set below.
  }, [shape]);

  useEffect(() => plot.current?.setData(data), [at, ...lines.map(({ values }) => values)]);

  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        {lines.map(({ label, style, values, isBad }) => (
          <span key={label} class={`legend style-${isBad === true ? "bad" : style}`}>
            <svg width="18" height="8" viewBox="0 0 18 8" aria-hidden="true">
              <path d="M0 4h18" stroke-dasharray={DASHES[style].join(" ")} />
            </svg>
            {label} <b>{latest(values)}</b>
          </span>
        ))}
        <span class="muted small">{unit}</span>
      </figcaption>
      <div class="plot" ref={holder} aria-hidden="true" />
      <details class="chart-table">
        <summary>{title} as a table</summary>
        <ChartTable at={at} lines={lines} title={title} />
      </details>
    </figure>
  );
}

function latest(values: readonly (number | null)[]): string {
  const value = values.findLast((candidate) => candidate !== null);
  return value === undefined || value === null ? "–" : formatNumber(value);
}

const MAX_TABLE_ROWS = 24;

function ChartTable({ at, lines, title }: Pick<ChartProps, "at" | "lines" | "title">): JSX.Element {
  const every = Math.max(1, Math.ceil(at.length / MAX_TABLE_ROWS));
  const rows = at.map((_, index) => index).filter((index) => (at.length - 1 - index) % every === 0);
  return (
    <div class="scroller" tabIndex={0} role="group" aria-label={`${title} as a table`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {lines.map(({ label }) => (
              <th key={label} scope="col" class="number">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.toReversed().map((index) => (
            <tr key={index}>
              <td>{formatTime((at[index] ?? 0) * 1000, zone.value, nowMs.peek())}</td>
              {lines.map(({ label, values }) => {
                const value = values[index];
                return (
                  <td key={label} class="number">
                    {value === null || value === undefined ? "–" : formatNumber(value)}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function optionsOf(lines: readonly Line[], element: HTMLElement, timeZone: "local" | "utc"): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string): string => style.getPropertyValue(name);
  const axis: uPlot.Axis = {
    stroke: colour("--chart-ink"),
    grid: { stroke: colour("--chart-grid"), width: 1 },
    ticks: { show: false },
    font: "11px system-ui, sans-serif",
  };
  return {
    width: Math.max(200, element.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    ...(timeZone === "utc" && {
      tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    }),
    scales: { y: { range: (_, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      {
        ...axis,
        size: 28,
        space: 70,
        values: (_, splits) => splits.map((split) => shortTime(split, timeZone)),
      },
      { ...axis, size: 46, space: 32, values: (_, splits) => splits.map((split) => formatNumber(split)) },
    ],
    series: [
      {},
      ...lines.map(({ label, style: number, isBad }) => ({
        label,
        stroke: colour(isBad === true ? "--line-bad" : `--line-${number}`),
        width: 1.75,
        dash: DASHES[number],
        points: { show: false },
      })),
    ],
  };
}

function shortTime(seconds: number, timeZone: "local" | "utc"): string {
  return formatTime(seconds * 1000, timeZone, seconds * 1000).slice(0, 5);
}

/** A small bar chart of a trend, with its meaning as text. */
export function Trend({ values, label }: { values: readonly number[]; label: string }): JSX.Element {
  const most = Math.max(1, ...values);
  return (
    <svg
      class="trend"
      viewBox={`0 0 ${values.length * 7} 24`}
      width={values.length * 7}
      height="24"
      role="img"
      aria-label={label}
    >
      {values.map((value, index) => {
        const height = value === 0 ? 1 : Math.max(3, (value / most) * 22);
        return (
          <rect
            key={index}
            x={index * 7}
            y={24 - height}
            width="5"
            height={height}
            class={value === 0 ? "zero" : undefined}
          />
        );
      })}
    </svg>
  );
}
