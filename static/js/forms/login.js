// The login page: what was typed before the session ended is put back after it.
import { passLogin } from "./drafts.js";

passLogin();
