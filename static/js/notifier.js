// The worker through which a phone's browser shows notifications: a tap opens the alert.
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow(event.notification.data.url));
});
