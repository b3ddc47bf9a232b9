// What the browser's types do not say of Weir's pages: their events, what a selector finds, Plotly.
// Only the checker reads it (jsconfig.json).

/** A listener hears what happens to any element inside: a click, a key, a field's input, a form's submit. */
interface PageEvents {
  click: PointerEvent & { readonly target: HTMLButtonElement }; // or what else is clicked: ask `closest` first
  focusin: FocusEvent & { readonly target: HTMLElement };
  mousedown: MouseEvent & { readonly target: HTMLElement };
  keydown: KeyboardEvent & { readonly target: HTMLElement };
  input: InputEvent & { readonly target: HTMLInputElement };
  change: Event & { readonly target: HTMLInputElement };
  submit: SubmitEvent & { readonly target: HTMLFormElement };
  reset: Event & { readonly target: HTMLFormElement };
  "weir:part": CustomEvent<HTMLElement>; // a part of the page was replaced by this one
}

interface Document {
  addEventListener<K extends keyof PageEvents>(type: K, listener: (event: PageEvents[K]) => void, capture?: boolean): void;
}

interface HTMLElement {
  addEventListener<K extends keyof PageEvents>(type: K, listener: (event: PageEvents[K]) => void): void;
}

/** What a selector finds, by the tag of its last part: `form.steer` finds forms, `.steer` any HTML element. */
type Found<S extends string> = S extends `${infer One}, ${infer Other}` ? Found<One> | Found<Other>
  : S extends `${string} ${infer Last}` ? Found<Last>
    : Tag<S> extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Tag<S>] : HTMLElement;
type Tag<S extends string> = S extends `${infer Before}${"[" | "." | ":" | "#"}${string}` ? Tag<Before> : S;

interface ParentNode {
  querySelector<S extends string>(selectors: S): Found<S> | null;
  querySelectorAll<S extends string>(selectors: S): NodeListOf<Found<S>>;
}

interface Element {
  closest<S extends string>(selectors: S): Found<S> | null;
}

/** A form's fields by their names: `form.elements.reason.value`. */
interface HTMLFormControlsCollection {
  [name: string]: any;
}

/** The notifier's window is a worker's. */
interface WindowEventMap {
  notificationclick: Event & { readonly notification: Notification; waitUntil(done: Promise<unknown>): void };
}

interface Window {
  readonly clients: { openWindow(url: string): Promise<unknown> };
  Plotly?: {
    react(plot: Element, data: object[], layout: object, options: object): Promise<Element>;
    purge(plot: Element): void;
  };
}
